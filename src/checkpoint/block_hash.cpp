#include "checkpoint/block_hash.h"

#include <algorithm>

namespace tessera {

void BlockHash::update(std::span<const std::byte> bytes) {
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

std::vector<uint64_t> BlockHash::finish() {
  hashes_.push_back(hash_.value());
  return std::move(hashes_);
}

}  // namespace tessera
