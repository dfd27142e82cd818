#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/hash.h"

namespace tessera {

/// The block size with which any number of bytes is one block and has one hash.
inline constexpr int64_t kOneBlock = std::numeric_limits<int64_t>::max();

/// Returns the number of blocks of `bytes` bytes; the last may be shorter. No bytes are one block.
inline int64_t block_count(int64_t bytes, int64_t block_bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / block_bytes + 1;
}

/// Computes the hashes of blocks of one size.
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
  /// Returns the XXH3 of each block. No bytes may follow.
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
