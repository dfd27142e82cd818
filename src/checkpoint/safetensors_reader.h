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

/// The number of bytes that read_chunks() reads at once. They fit in the cache.
inline constexpr int64_t kReadChunk = int64_t{1} << 20;

/// Receives a tensor's bytes, in order and in chunks. It may change the bytes of a chunk in place.
using ChunkSink = std::function<void(std::span<std::byte>)>;

/// One tensor of a safetensors file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< as spelled in the file: "BF16"
  std::vector<int64_t> shape;
  int64_t begin = 0;  ///< byte offset, counted from the end of the header
  int64_t end = 0;    ///< the offset after its last byte

  int64_t bytes() const { return end - begin; }
};

/// A safetensors file (https://github.com/huggingface/safetensors), open for reading:
///
///   8 bytes   N, the header's size, little-endian
///   N bytes   a JSON object {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
///             ..., "__metadata__": {"KEY": "TEXT", ...}}, padded with spaces
///   the rest  the tensors' elements, little-endian, row-major, without gaps
///
/// The constructor does not trust the file. It checks the header's size, that the header is strict
/// JSON, every entry's type, that each tensor's bytes match its shape, and that the tensors cover
/// the rest of the file exactly once. It throws Error naming the file and the tensor. Tensors are
/// read by read calls, not through a memory mapping: a bad block is then an Error, not a signal.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const fs::path& path);

  const fs::path& path() const { return file_.path(); }
  /// Returns the tensors, in the order of their bytes.
  std::span<const SafetensorsEntry> entries() const { return entries_; }
  /// Returns the tensor with this name, or null.
  const SafetensorsEntry* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  int64_t file_bytes() const { return file_.size(); }
  /// Returns the size of the header, including the 8 bytes that state it.
  int64_t header_bytes() const { return data_offset_; }
  uint64_t header_hash() const { return header_hash_; }
  /// Reads bytes of one of entries(), from its byte `begin` on. Safe to call from several threads.
  void read(const SafetensorsEntry& entry, int64_t begin, std::span<std::byte> to) const;
  /// Reads all bytes of one of entries(). Only for tensors that are known to be small.
  std::vector<std::byte> read(const SafetensorsEntry& entry) const;
  /// Passes `count` bytes of one of entries(), from its byte `begin` on, to the sink, kReadChunk
  /// bytes each time but the last. These are whole elements if `begin` is the start of one.
  void read_chunks(const SafetensorsEntry& entry, int64_t begin, int64_t count,
                   const ChunkSink& sink) const;
  /// Asks the operating system to read a tensor ahead.
  void will_need(const SafetensorsEntry& entry) const;

 private:
  /// Reads the header and returns its JSON.
  std::string read_header();
  void parse_header();
  void check_coverage() const;

  ReadFile file_;
  int64_t data_offset_ = 0;
  uint64_t header_hash_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;  // indices in entries_
  std::map<std::string, std::string> metadata_;
};

}  // namespace tessera
