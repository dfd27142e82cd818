#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/hash.h"

namespace tessera {

// Saved tensors are hashed in blocks. A reader of a part then checks only the blocks that it reads.

/// The block size for a single hash: any number of bytes is then one block.
inline constexpr int64_t kOneBlock = std::numeric_limits<int64_t>::max();

/// Returns the number of blocks of `bytes` bytes; the last may be shorter. 0 bytes are one block.
inline int64_t block_count(int64_t bytes, int64_t block_bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / block_bytes + 1;
}

/// Divides a stream of bytes into blocks of one size, and computes the hash of each.
class BlockHash {
 public:
  explicit BlockHash(int64_t block_bytes) : block_bytes_(block_bytes) {}

  void update(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (in_block_ == block_bytes_) {
        hashes_.push_back(hash_.value());
        hash_ = StreamHash();
        in_block_ = 0;
      }
      const auto count = std::min(static_cast<int64_t>(bytes.size()), block_bytes_ - in_block_);
      hash_.update(bytes.first(static_cast<size_t>(count)));
      in_block_ += count;
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }
  /// Returns the XXH3 of each block. update() may not be called afterwards.
  std::vector<uint64_t> finish() {
    hashes_.push_back(hash_.value());
    return std::move(hashes_);
  }

 private:
  int64_t block_bytes_;
  int64_t in_block_ = 0;
  StreamHash hash_;
  std::vector<uint64_t> hashes_;
};

}  // namespace tessera
