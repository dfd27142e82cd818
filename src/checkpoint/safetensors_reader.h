#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/read_file.h"

namespace tessera {

/// Bytes of a tensor that are read, and then hashed and used, at once.
inline constexpr int64_t kReadPiece = int64_t{1} << 20;

/// Takes a tensor's bytes, in order and in pieces that it may change.
using PieceSink = std::function<void(std::span<std::byte>)>;

/// One tensor of a safetensors file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< as the file has it: "BF16"
  std::vector<int64_t> shape;
  int64_t begin = 0;  ///< its bytes, counted from the end of the header
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

/// A safetensors file (https://github.com/huggingface/safetensors), open for reading:
///
///   8 bytes   N, the header's size, little-endian
///   N bytes   a JSON object {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
///             ..., "__metadata__": {"KEY": "TEXT", ...}}, padded with spaces
///   the rest  the tensors' elements, little-endian, row-major, without holes
///
/// The constructor trusts nothing: it checks the header's size, that it is strict JSON, every
/// entry's type, that each tensor's bytes are those of its shape and that they cover the rest of
/// the file exactly once. It throws Error naming the file and the tensor.
///
/// Tensors are read by calls, not through a mapping: a bad block, or a file that was cut short
/// meanwhile, is an Error that names the file.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const fs::path& path);

  const fs::path& path() const { return file_.path(); }
  /// In the order of their bytes.
  std::span<const SafetensorsEntry> entries() const { return entries_; }
  /// Nothing found: nullptr.
  const SafetensorsEntry* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The size of the whole file.
  int64_t file_bytes() const { return file_.size(); }
  /// The size of the header with the 8 bytes that state it.
  int64_t header_bytes() const { return data_offset_; }
  /// XXH3 of these bytes.
  uint64_t header_hash() const { return header_hash_; }
  /// Reads bytes of one of entries(), from its byte `begin` on; any thread may.
  void read(const SafetensorsEntry& entry, int64_t begin, std::span<std::byte> to) const;
  /// All bytes of one of entries(), for tensors that are known to be small.
  std::vector<std::byte> read(const SafetensorsEntry& entry) const;
  /// Gives the sink `count` bytes of one of entries() from its byte `begin` on, in pieces that stay
  /// in the cache: aligned, whole elements, of kReadPiece bytes but the last.
  void read_pieces(const SafetensorsEntry& entry, int64_t begin, int64_t count,
                   const PieceSink& sink) const;
  /// Asks the system to read a tensor ahead of its use.
  void will_need(const SafetensorsEntry& entry) const;

 private:
  /// The header's JSON.
  std::string read_header();
  void parse_header();
  void check_coverage() const;

  ReadFile file_;
  int64_t data_offset_ = 0;
  uint64_t header_hash_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;  // -> index in entries_
  std::map<std::string, std::string> metadata_;
};

}  // namespace tessera
