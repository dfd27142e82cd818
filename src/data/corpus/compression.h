#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/read_file.h"
#include "base/words.h"

namespace tessera {

/// The compression of an input file.
enum class Compression {
  none,
  gzip,  ///< RFC 1952; any number of members, as pigz and bgzip write; zeros may follow
  zstd,  ///< RFC 8878; any number of frames, including skippable ones
};

template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<Compression>{"none", "gzip", "zstd"};

/// Returns the compression of a file, judged by its name and its first bytes. The suffix .gz, .zst
/// or .zstd, in upper or lower case, means that it is compressed. Throws Error when the name and
/// the content contradict each other. Throws Error too for content from which we read no text:
/// other compressions, archives, Parquet, UTF-16 and UTF-32.
Compression detect_compression(const fs::path& path);

/// Returns the suffix of a path in lower case: ".gz".
std::string lower_case_extension(const fs::path& path);

/// Returns `path` without its compression suffix.
fs::path without_compression_suffix(const fs::path& path);

/// A reader that unpacks a compressed file as its bytes are requested. Memory is bounded, whatever
/// the file contains: about 300 KiB for gzip. For zstd it also holds the window that the file was
/// compressed with, at most 2 GiB (`zstd --long=31`) and usually 8 MiB or less.
class Decompressor {
 public:
  /// `compression` is gzip or zstd. Throws Error when the file cannot be read.
  Decompressor(const fs::path& path, Compression compression);
  ~Decompressor();
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  /// Fills `buffer` and returns the number of bytes read. It is below the buffer's size only at the
  /// end. Throws Error naming the file and the compressed offset when the file is cut short,
  /// damaged, followed by other bytes, or needs a larger window. Throws Error too when the unpacked
  /// data is compressed again, or of another kind that detect_compression() refuses.
  size_t read(std::span<char> buffer);

  /// Returns the size in bytes of the compressed file. The file must not change while it is read.
  int64_t compressed_size() const;

 private:
  class Stream;
  class GzipStream;
  class ZstdStream;

  ReadFile file_;
  std::unique_ptr<Stream> stream_;
  bool started_ = false;
};

}  // namespace tessera
