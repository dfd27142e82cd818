#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/block_hash.h"
#include "tensor/tensor.h"

namespace tessera {

/// Receives a tensor's bytes, in order and in pieces of any size.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// A tensor that need not be in memory. Its bytes are made piece by piece while they are written.
struct TensorStream {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  /// Passes all bytes to the sink. It is called once, on any thread.
  std::function<void(const ByteSink&)> produce;

  int64_t bytes() const { return shape.elements() * dtype_size(dtype); }
};

/// The result of write_streams().
struct SafetensorsSummary {
  int64_t bytes = 0;         // the size of the whole file
  uint64_t header_hash = 0;  // XXH3 of the header, including the 8 bytes of its size
  /// XXH3 of the blocks of each tensor's bytes, in the order of the streams.
  std::vector<std::vector<uint64_t>> hashes;
};

/// Writes a safetensors file (see SafetensorsReader for the format) that appears whole or not at
/// all. Each block of `block_bytes` of a tensor is hashed by itself while it is written. Tensors
/// with wider elements come first, so that each tensor is aligned to its elements; tensors of equal
/// width stay in the given order. Throws Error when a name occurs twice, is "__metadata__" or is
/// not UTF-8, when the header exceeds the format's limit, and when the file cannot be written.
SafetensorsSummary write_streams(const fs::path& path, std::span<const TensorStream> streams,
                                 const std::map<std::string, std::string>& metadata = {},
                                 int64_t block_bytes = kOneBlock);

}  // namespace tessera
