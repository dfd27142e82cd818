#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tessera {

/// One tensor of a safetensors file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< as the file has it: "BF16"
  std::vector<int64_t> shape;
  int64_t begin = 0;  ///< its bytes, counted from the end of the header
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

/// A safetensors file (https://github.com/huggingface/safetensors), mapped read-only:
///
///   8 bytes   N, the header's size, little-endian
///   N bytes   a JSON object {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
///             ..., "__metadata__": {"KEY": "TEXT", ...}}, padded with spaces
///   the rest  the tensors' elements, little-endian, row-major, without holes
///
/// The constructor trusts nothing: it checks the header's size, that it is strict JSON, every
/// entry's type, that each tensor's bytes are those of its shape and that they cover the rest of
/// the file exactly once. It throws Error naming the file and the tensor.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const fs::path& path);

  const fs::path& path() const { return file_.path(); }
  /// In the order of their bytes.
  std::span<const SafetensorsEntry> entries() const { return entries_; }
  /// Nothing found: nullptr.
  const SafetensorsEntry* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The header with the 8 bytes of its size.
  std::span<const std::byte> header() const { return file_.bytes().first(data_offset_); }
  /// The elements of one of entries(); not aligned in general. The pages are read when touched.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  /// Asks the system to read a tensor ahead of its use.
  void will_need(const SafetensorsEntry& entry) const;
  /// Lets the system take back the memory of a tensor that was read; its pages come back when
  /// touched.
  void release(const SafetensorsEntry& entry) const;

 private:
  void parse_header();
  void check_coverage() const;

  MappedFile file_;
  size_t data_offset_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;  // -> index in entries_
  std::map<std::string, std::string> metadata_;
};

}  // namespace tessera
