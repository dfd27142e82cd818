#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/read_file.h"

namespace tessera {

/// How the bytes of an input file are packed.
enum class Compression {
  none,
  gzip,  ///< RFC 1952; any number of members, as pigz and bgzip write them; zeros may follow
  zstd,  ///< RFC 8878; any number of frames, skippable ones included
};

/// "none", "gzip", "zstd", and back; throws Error naming `origin` when it is none of them.
std::string_view compression_name(Compression compression);
Compression compression_from_name(std::string_view name, const std::string& origin);

/// What a file is, by its name and its first bytes: .gz or .zst, in either case, says that it is
/// compressed. Throws Error when name and content contradict each other, and when the content is of
/// a kind that holds no text for us: other compressions, archives, Parquet.
Compression detect_compression(const fs::path& path);

/// `path` without the suffix that says how it is compressed.
fs::path without_compression_suffix(const fs::path& path);

/// The bytes of a compressed file, unpacked as they are asked for. Memory is bounded whatever the
/// file says: some 300 KiB for gzip; for zstd also the window with which it was compressed, which
/// is at most 2 GiB (`zstd --long=31`) and usually 8 MiB or less.
class Decompressor {
 public:
  /// `compression` is gzip or zstd. Throws Error when the file cannot be read.
  Decompressor(const fs::path& path, Compression compression);
  ~Decompressor();
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  /// Fills `buffer` and returns how many bytes were left to fill it with: fewer than its size at
  /// the end only. Throws Error naming the file and the compressed offset when it is cut short,
  /// damaged, followed by other bytes, or needs a larger window; and when what is unpacked is once
  /// more compressed, an archive or Parquet.
  size_t read(std::span<char> buffer);

  /// Bytes of the file itself, which must not change while it is read.
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
