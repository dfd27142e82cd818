#include "data/corpus/compression.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/error.h"

// The kind of a file is judged by its name and its first bytes. Decompressor owns the stream that
// unpacks a file, GzipStream or ZstdStream, and also judges the first unpacked bytes.

namespace tessera {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kGzipMagic = "\x1F\x8B\x08"sv;
constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD"sv;

/// The bytes at some offset that identify a kind of file from which we read no text.
struct Signature {
  size_t offset;
  std::string_view bytes;
  std::string_view kind;
};
constexpr std::array<Signature, 6> kRefusedKinds = {{
    {0, "\xFD\x37zXZ\0"sv, "an xz"},
    {4, "1AY&SY"sv, "a bzip2"},  // after "BZh" and a digit, which text might begin with
    {0, "PK\x03\x04"sv, "a zip"},
    {0, "7z\xBC\xAF\x27\x1C"sv, "a 7-Zip"},
    {0, "PAR1"sv, "a Parquet"},
    {257, "ustar"sv, "a tar"},
}};
/// A byte-order mark of an encoding other than UTF-8.
struct OtherEncoding {
  std::string_view mark;
  std::string_view name;
};
/// UTF-32 comes first, because its little-endian mark begins with that of UTF-16.
constexpr std::array<OtherEncoding, 4> kOtherEncodings = {{
    {"\xFF\xFE\0\0"sv, "UTF-32"},
    {"\0\0\xFE\xFF"sv, "UTF-32"},
    {"\xFF\xFE"sv, "UTF-16"},
    {"\xFE\xFF"sv, "UTF-16"},
}};
constexpr size_t kLongestStart = 512;  // enough for every signature
constexpr size_t kLeastToJudge = 16;   // fewer bytes do not show a share of zeros

bool is_zstd(std::string_view start) {
  // A skippable frame begins with one of the 32-bit numbers 0x184D2A50 to 0x184D2A5F.
  const bool skippable =
      start.size() >= 4 && (start[0] & 0xF0) == 0x50 && start.substr(1, 3) == "\x2A\x4D\x18"sv;
  return skippable || start.starts_with(kZstdMagic);
}

Compression compression_of_content(std::string_view start) {
  if (start.starts_with(kGzipMagic)) return Compression::gzip;
  return is_zstd(start) ? Compression::zstd : Compression::none;
}

Compression compression_of_name(const fs::path& path) {
  const std::string extension = lower_case_extension(path);
  if (extension == ".gz") return Compression::gzip;
  if (extension == ".zst" || extension == ".zstd") return Compression::zstd;
  return Compression::none;
}

/// Throws Error for other kinds and encodings. Tokenized as text, they would give useless data.
void refuse_other_kinds(std::string_view start, std::string_view name) {
  for (const auto& [offset, bytes, kind] : kRefusedKinds) {
    if (start.size() >= offset && start.substr(offset).starts_with(bytes)) {
      throw Error(
          "{} is {} file; expected plain text or JSONL, alone or in gzip or zstd: unpack "
          "or convert it first",
          name, kind);
    }
  }
  for (const auto& [mark, encoding] : kOtherEncodings) {
    if (!start.starts_with(mark)) continue;
    throw Error(
        "{} is {} text, by its byte-order mark; expected UTF-8: convert it first (iconv -f {} -t "
        "UTF-8)",
        name, encoding, encoding);
  }
  // Half of the bytes of Latin letters in UTF-16 are zero, and three quarters in UTF-32.
  const auto zeros = static_cast<size_t>(std::ranges::count(start, '\0'));
  if (start.size() >= kLeastToJudge && zeros >= start.size() / 4) {
    throw Error(
        "{} looks like UTF-16 or UTF-32 without a byte-order mark: {} of its first {} bytes are "
        "zero; expected UTF-8: convert it first (for example iconv -f UTF-16LE -t UTF-8)",
        name, zeros, start.size());
  }
}

}  // namespace

std::string lower_case_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  return extension;
}

Compression detect_compression(const fs::path& path) {
  const ReadFile file(path);
  std::string start(std::min(kLongestStart, static_cast<size_t>(file.size())), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(start)));
  const Compression named = compression_of_name(path);
  const Compression found = compression_of_content(start);
  if (found == Compression::none) refuse_other_kinds(start, path.string());
  if (named == found) return found;
  if (named == Compression::none) {
    throw Error("{} holds {} data, but its name does not end in {}; rename it", path.string(),
                word(found), found == Compression::gzip ? ".gz" : ".zst");
  }
  throw Error("{} is named as {} data, but {}; rename it or fetch it again", path.string(),
              word(named),
              start.empty()                ? "it is empty"
              : found == Compression::none ? "does not begin as such data does"
                                           : "it holds the other compression's");
}

fs::path without_compression_suffix(const fs::path& path) {
  return compression_of_name(path) == Compression::none ? path : fs::path(path).replace_extension();
}

/// A stream that unpacks one compression format through a window that moves along the file.
class Decompressor::Stream {
 public:
  explicit Stream(const ReadFile& file) : file_(file) {}
  virtual ~Stream() = default;
  /// As Decompressor::read().
  virtual size_t read(std::span<char> buffer) = 0;

 protected:
  /// Returns the bytes that are not unpacked yet: at least `wanted`, or all up to the file's end.
  std::span<const std::byte> packed_bytes(size_t wanted = 1) {
    if (packed_.size() < wanted && window_end_ < file_.size()) {
      std::vector<std::byte> window(packed_.begin(), packed_.end());
      const size_t read =
          static_cast<size_t>(std::min<int64_t>(kWindow, file_.size() - window_end_));
      window.resize(packed_.size() + read);
      file_.read_at(window_end_, std::span(window).last(read));
      window_end_ += static_cast<int64_t>(read);
      window_ = std::move(window);
      packed_ = window_;
    }
    return packed_;
  }
  void drop(size_t bytes) { packed_ = packed_.subspan(bytes); }

  /// Returns the offset in the file of the bytes that are not unpacked yet.
  int64_t offset() const { return window_end_ - static_cast<int64_t>(packed_.size()); }

  [[noreturn]] void fail_at(int64_t offset, std::string_view what) const {
    throw Error("{}: {} at byte {} of its {} compressed bytes; fetch or compress the file again",
                file_.path().string(), what, offset, file_.size());
  }
  [[noreturn]] void fail(std::string_view what) const { fail_at(offset(), what); }
  [[noreturn]] void fail_truncated() const { fail("the data is cut short: it ends"); }

  const ReadFile& file_;

 private:
  static constexpr int64_t kWindow = int64_t{256} << 10;

  std::vector<std::byte> window_;
  std::span<const std::byte> packed_;  // the end of the window: bytes that are not unpacked yet
  int64_t window_end_ = 0;             // the offset in the file of its end
};

class Decompressor::GzipStream : public Stream {
 public:
  explicit GzipStream(const ReadFile& file) : Stream(file) {
    constexpr int kGzipOnly = 16;  // zlib accepts no other header
    TESSERA_CHECK(inflateInit2(&state_, kGzipOnly + MAX_WBITS) == Z_OK, "no memory for zlib");
  }
  ~GzipStream() override { inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(std::span<char> buffer) override {
    size_t filled = 0;
    while (filled < buffer.size() && begin_member()) filled += inflate_into(buffer.subspan(filled));
    return filled;
  }

 private:
  /// Begins the next member unless one is being read. Returns false at the end of the file.
  bool begin_member() {
    if (in_member_) return true;
    const std::span<const std::byte> bytes = packed_bytes(kGzipMagic.size());
    if (bytes.empty() || (begun_ && bytes[0] == std::byte{0} && only_zeros_follow())) return false;
    const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                                 std::min(bytes.size(), kGzipMagic.size()));
    if (start != kGzipMagic) {
      if (kGzipMagic.starts_with(start)) fail_truncated();
      fail("bytes that are no gzip data follow the data,");
    }
    inflateReset(&state_);
    in_member_ = begun_ = true;
    return true;
  }

  /// Returns whether only zeros follow up to the file's end: padding, which gzip ignores too.
  bool only_zeros_follow() const {
    std::array<std::byte, size_t{16} << 10> buffer{};
    for (int64_t at = offset(); at < file_.size(); at += static_cast<int64_t>(buffer.size())) {
      const std::span<std::byte> bytes =
          std::span(buffer).first(std::min(buffer.size(), static_cast<size_t>(file_.size() - at)));
      file_.read_at(at, bytes);
      const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
      if (!std::ranges::all_of(bytes, is_zero)) return false;
    }
    return true;
  }

  size_t inflate_into(std::span<char> buffer) {
    // zlib counts in 32 bits.
    constexpr size_t kMaxRoom = std::numeric_limits<int32_t>::max();
    const std::span<const std::byte> bytes = packed_bytes();
    const size_t room = std::min(buffer.size(), kMaxRoom);
    // zlib does not write through next_in, which is not const.
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    state_.avail_in = static_cast<uInt>(bytes.size());
    state_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    state_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&state_, Z_NO_FLUSH);
    drop(bytes.size() - state_.avail_in);
    const size_t unpacked = room - state_.avail_out;
    if (status == Z_STREAM_END) {
      in_member_ = false;
    } else if (status == Z_DATA_ERROR || status == Z_NEED_DICT) {
      fail(fmt::format("the gzip data is damaged ({})",
                       state_.msg == nullptr ? "unknown" : state_.msg));
    } else if (status == Z_MEM_ERROR) {
      fail("there is no memory to unpack the data");
    } else if (unpacked == 0 && packed_bytes().empty()) {
      fail_truncated();
    }
    return unpacked;
  }

  z_stream state_{};
  bool in_member_ = false;  // a gzip file consists of members
  bool begun_ = false;      // true once the first member has begun
};

class Decompressor::ZstdStream : public Stream {
 public:
  explicit ZstdStream(const ReadFile& file) : Stream(file), state_(ZSTD_createDCtx()) {
    TESSERA_CHECK(state_ != nullptr, "no memory for zstd");
    // By default the library refuses windows above 128 MiB.
    ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax,
                           ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }
  ~ZstdStream() override { ZSTD_freeDCtx(state_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  size_t read(std::span<char> buffer) override {
    ZSTD_outBuffer output{buffer.data(), buffer.size(), 0};
    while (output.pos < output.size) {
      const std::span<const std::byte> bytes = packed_bytes();
      if (!in_frame_ && bytes.empty()) break;
      if (!in_frame_) frame_offset_ = offset();
      const size_t before = output.pos;
      ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
      const size_t status = ZSTD_decompressStream(state_, &output, &input);
      drop(input.pos);
      if (ZSTD_isError(status) != 0) refuse(status);
      in_frame_ = status != 0;
      if (in_frame_ && input.pos == 0 && output.pos == before && bytes.empty()) fail_truncated();
    }
    return output.pos;
  }

 private:
  [[noreturn]] void refuse(size_t status) {
    switch (ZSTD_getErrorCode(status)) {
      case ZSTD_error_frameParameter_windowTooLarge:
        throw Error(
            "{}: a zstd frame needs a window beyond 2 GiB, the largest that can be unpacked; "
            "compress the file again with --long=31 or less",
            file_.path().string());
      case ZSTD_error_prefix_unknown:
        fail_at(frame_offset_, "bytes that are no zstd data follow,");
      case ZSTD_error_dictionary_wrong:
        fail("the data was compressed with a dictionary, which is not supported,");
      default:
        fail(fmt::format("the zstd data is damaged ({})", ZSTD_getErrorName(status)));
    }
  }

  ZSTD_DCtx* state_;
  bool in_frame_ = false;     // a zstd file consists of frames
  int64_t frame_offset_ = 0;  // the offset of the frame begun last
};

Decompressor::Decompressor(const fs::path& path, Compression compression) : file_(path) {
  TESSERA_CHECK(compression != Compression::none, "{} is not compressed", path.string());
  if (compression == Compression::gzip) {
    stream_ = std::make_unique<GzipStream>(file_);
  } else {
    stream_ = std::make_unique<ZstdStream>(file_);
  }
}

Decompressor::~Decompressor() = default;

size_t Decompressor::read(std::span<char> buffer) {
  const size_t filled = stream_->read(buffer);
  if (!std::exchange(started_, true)) {
    const std::string_view start(buffer.data(), std::min(filled, kLongestStart));
    const std::string name = "what " + file_.path().string() + " unpacks to";
    refuse_other_kinds(start, name);
    if (const Compression again = compression_of_content(start); again != Compression::none) {
      throw Error("{} is once more {} data; unpack it first", name, word(again));
    }
  }
  return filled;
}

int64_t Decompressor::compressed_size() const { return file_.size(); }

}  // namespace tessera
