#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

// The functions are constexpr so that kernels of devices can call them too.

/// The number of tokens in a block. It is fixed, so the order of rows does not depend on the number
/// of threads. The paper's GPU kernel has 8.
inline constexpr int64_t kTokenBlock = 64;

constexpr int64_t token_blocks(int64_t tokens) { return (tokens + kTokenBlock - 1) / kTokenBlock; }

/// The choices of block `block`, as a range of elements of indices [tokens, k].
struct BlockChoices {
  constexpr BlockChoices(int64_t block, int64_t tokens, int64_t k)
      : begin(block * kTokenBlock * k), end(std::min((block + 1) * kTokenBlock, tokens) * k) {}
  int64_t begin;
  int64_t end;
};

}  // namespace tessera
