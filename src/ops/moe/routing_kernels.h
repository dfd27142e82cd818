#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

class Stream;

// What the kernels of token_counts() and token_indices() share. They count the tokens of each
// expert and assign rows to them, a counting sort that keeps the order of the tokens. Blocks of
// consecutive tokens are counted in parallel: by one thread each on the processor, by one block of
// threads each on a device. Functions are constexpr so that kernels of devices can call them.

/// The number of tokens in a block. It is fixed, so the order of rows does not depend on the number
/// of threads. FastSparseMoE's GPU kernel has 8.
inline constexpr int64_t kTokenBlock = 64;

constexpr int64_t token_blocks(int64_t tokens) { return (tokens + kTokenBlock - 1) / kTokenBlock; }

/// The choices of a block's tokens, as a range of elements of indices [tokens, k].
struct BlockChoices {
  constexpr BlockChoices(int64_t block, int64_t tokens, int64_t k)
      : begin(block * kTokenBlock * k), end(std::min((block + 1) * kTokenBlock, tokens) * k) {}
  int64_t begin;
  int64_t end;
};

// The device kernels. All pointers are to device memory.

/// The most experts that a device can count: a block keeps a number for each in shared memory.
inline constexpr int64_t kMostRoutedExperts = 8192;

/// The arguments of one run of token_counts().
struct TokenCounting {
  int64_t tokens;
  int64_t k;
  int64_t experts;
  int64_t first_expert;
  int64_t local_experts;
  int32_t capacity;        // the largest number of tokens that an expert takes
  const int32_t* indices;  // [tokens, k]
  int32_t* block_counts;   // [token blocks, experts]: scratch memory
  int32_t* counts;         // [experts]
  int32_t* offsets;        // [local_experts + 1]
  int32_t* block_offsets;  // [token blocks, local_experts]
};

/// The arguments of one run of token_indices().
struct TokenNumbering {
  int64_t tokens;
  int64_t k;
  int64_t first_expert;
  int64_t local_experts;
  int64_t rows;                  // the reserved rows, tokens · k at most
  const int32_t* indices;        // [tokens, k]
  const int32_t* offsets;        // [local_experts + 1]
  const int32_t* block_offsets;  // [token blocks, local_experts]
  int32_t* input_indices;        // [rows]
  int32_t* output_indices;       // [tokens, k]
};

template <typename Vendor>
void token_counts_device(const TokenCounting& counting, Stream& stream);
template <typename Vendor>
void token_indices_device(const TokenNumbering& numbering, Stream& stream);

}  // namespace tessera
