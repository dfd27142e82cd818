#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace tessera {

struct SafetensorsItem {
  std::string name;
  Tensor tensor;
};

/// Takes a tensor's bytes, in order and in pieces of any size.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// A tensor that need not be in memory: its bytes are made piece by piece while they are written.
struct TensorStream {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  /// Gives all bytes to the sink; called once, on any thread.
  std::function<void(const ByteSink&)> produce;

  int64_t bytes() const { return shape.elements() * dtype_size(dtype); }
};

/// A stream of the bytes that a tensor has in memory.
TensorStream stream_of(const SafetensorsItem& item);

/// What write_safetensors wrote.
struct SafetensorsSummary {
  int64_t bytes = 0;             // of the whole file
  uint64_t header_hash = 0;      // XXH3 of the header with the 8 bytes of its size
  std::vector<uint64_t> hashes;  // XXH3 of each tensor's bytes, in the order of the items
};

/// Writes a safetensors file (see SafetensorsReader for the format) that appears whole or not at
/// all. The tensors' bytes go from their memory to the file without a copy, hashed on the way; they
/// stand in the order of the items, those of wider elements first, so that every tensor is aligned
/// to its element. Throws Error when a name occurs twice, is "__metadata__" or is not UTF-8, and
/// when the file cannot be written.
SafetensorsSummary write_streams(const fs::path& path, std::span<const TensorStream> streams,
                                 const std::map<std::string, std::string>& metadata = {});
/// The same with tensors that are in memory.
SafetensorsSummary write_safetensors(const fs::path& path, std::span<const SafetensorsItem> items,
                                     const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera
