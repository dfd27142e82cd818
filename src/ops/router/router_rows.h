#pragma once

#include <algorithm>
#include <bit>

#include "device/packs.h"

namespace tessera {
namespace {

// How device kernels divide a router's matrix among threads. A row has a number for each expert of
// one token. Rows are often so short that several share a warp: each gets `lanes` neighbouring
// lanes. A pack is `size` neighbouring elements, which a lane loads together.

inline constexpr int kRouterThreads = 128;  // threads of a block

/// The division of a matrix [tokens, experts] among lanes.
struct RouterRows {
  int64_t tokens;
  int experts;
  int lanes;  ///< the lanes of a row: a power of two, at most a warp
};

/// A token's row, as seen by one of the lanes that handle it. Lanes whose row does not exist have
/// no packs, but take part in sums.
template <int size>
struct RouterRow {
  int64_t token;
  bool exists;
  int lanes;
  int member;  ///< the index of this lane among the lanes of the row
  int packs;   ///< the packs of the row; 0 if the row does not exist

  /// Finds the row of this thread. The block's first row is that of token `first`.
  __device__ RouterRow(const RouterRows& rows, int64_t first)
      : token(first + static_cast<int>(threadIdx.x) / rows.lanes),
        exists(token < rows.tokens),
        lanes(rows.lanes),
        member(static_cast<int>(threadIdx.x) % rows.lanes),
        packs(exists ? rows.experts / size : 0) {
    if (!exists) token = 0;  // so that addresses stay within the matrix
  }

  /// Calls body(p) for each pack of the row that this lane handles.
  template <typename Body>
  __device__ void for_each_pack(Body&& body) const {
    for (int p = member; p < packs; p += lanes) body(p);
  }
  /// Returns the sum of `value` over the lanes of the row. Each of these lanes gets the sum.
  __device__ float sum(float value) const {
    for (int mask = lanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
  }
  /// Returns the largest `value` of the lanes of the row. Each of these lanes gets it.
  template <typename T>
  __device__ T max(T value) const {
    for (int mask = lanes / 2; mask > 0; mask /= 2) {
      const T received = shuffle_xor(value, mask);
      value = received > value ? received : value;
    }
    return value;
  }
};

/// Returns the number of tokens that a block handles at once.
__device__ inline int64_t rows_at_once(const RouterRows& rows) {
  return static_cast<int>(blockDim.x) / rows.lanes;
}

/// The maximum of a row of logits, and the denominator of its softmax, Σ exp(logit − maximum). Only
/// the maximum skips NaNs, as in the plain kernel.
struct ExponentialSum {
  float maximum, sum;
};

/// Returns the row's ExponentialSum to each of its lanes.
template <int size>
__device__ ExponentialSum exponential_sum(const RouterRow<size>& row, const float* logits) {
  float maximum = -INFINITY;
  row.for_each_pack([&](int p) {
    const Pack<float, size> pack = load_pack<size>(logits, p);
    for (int i = 0; i < size; ++i) maximum = pack.values[i] > maximum ? pack.values[i] : maximum;
  });
  maximum = row.max(maximum);
  float sum = 0;
  row.for_each_pack([&](int p) {
    const Pack<float, size> pack = load_pack<size>(logits, p);
    for (int i = 0; i < size; ++i) sum += expf(pack.values[i] - maximum);
  });
  return {maximum, row.sum(sum)};
}

/// Calls body(pack size, rows, grid) with the division of a matrix [tokens, experts]. The grid has
/// a block for every kRouterThreads lanes.
template <typename Body>
void for_router_rows(int64_t tokens, int64_t experts, Body&& body) {
  with_pack_size<kPackSize<float>>(experts, [&](auto size) {
    const auto packs = static_cast<unsigned>(experts / size);
    const RouterRows rows{tokens, static_cast<int>(experts),
                          static_cast<int>(std::min(unsigned{kLanes}, std::bit_ceil(packs)))};
    const int64_t block_rows = kRouterThreads / rows.lanes;
    body(size, rows,
         Grid{.blocks = (tokens + block_rows - 1) / block_rows, .threads = kRouterThreads});
  });
}

}  // namespace
}  // namespace tessera
