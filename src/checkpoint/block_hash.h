#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/hash.h"

namespace tessera {

/// The size of blocks of bytes that have one hash for all, however many they are.
inline constexpr int64_t kOneBlock = std::numeric_limits<int64_t>::max();

/// The number of blocks of so many bytes, of which the last may be shorter. No bytes are one block.
inline int64_t block_count(int64_t bytes, int64_t block_bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / block_bytes + 1;
}

/// Hashes bytes in blocks of one size.
class BlockHash {
 public:
  explicit BlockHash(int64_t block_bytes) : block_bytes_(block_bytes) {}

  void update(std::span<const std::byte> bytes);
  /// The XXH3 of each block. No bytes may follow.
  std::vector<uint64_t> finish();

 private:
  int64_t block_bytes_;
  int64_t in_block_ = 0;
  StreamHash hash_;
  std::vector<uint64_t> hashes_;
};

}  // namespace tessera
