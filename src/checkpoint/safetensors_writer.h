#pragma once

#include <cstdint>
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
SafetensorsSummary write_safetensors(const fs::path& path, std::span<const SafetensorsItem> items,
                                     const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera
