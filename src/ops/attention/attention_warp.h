#pragma once

// What the device's attention kernels share. Only files of kernels include it. A warp works on one
// row. To compute scores, each lane takes one key. To sum over keys, each lane takes some channels.

#include <type_traits>

#include "device/packs.h"
#include "ops/attention/attention_kernels.h"

namespace tessera {
namespace {

/// Returns the index of the row that this warp works on. The last block may have more warps than
/// there are rows left, so the row may not exist.
__device__ inline int row_of_warp() { return static_cast<int>(warp_of_grid()); }

/// Returns the first index in [begin, end) with ascending[index] >= bound, or `end` if none has.
__device__ inline int first_not_below(const int32_t* ascending, int begin, int end, int64_t bound) {
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (ascending[middle] < bound) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

/// One query row and its offsets, in elements.
struct QueryRow {
  /// Returns the row of this warp. `exists` is false if the grid has more warps than rows.
  __device__ static QueryRow of_warp(const AttentionSizes& sizes) { return {sizes, row_of_warp()}; }
  /// `row` is an index in [sequences, heads, sequence].
  __device__ QueryRow(const AttentionSizes& sizes, int row)
      : exists(row < sizes.sequences * sizes.heads * sizes.sequence),
        index(row),
        token(row / (sizes.heads * sizes.sequence) * sizes.sequence + row % sizes.sequence),
        offset((static_cast<int64_t>(token) * sizes.heads + head_of(sizes, row)) * sizes.head_dim),
        key_offset((static_cast<int64_t>(row / (sizes.heads * sizes.sequence)) * sizes.keys *
                        sizes.kv_heads +
                    head_of(sizes, row) / (sizes.heads / sizes.kv_heads)) *
                   sizes.head_dim) {}

  bool exists;
  int index;  // in [sequences · heads, sequence]
  int token;
  int64_t offset;      // in q and the output
  int64_t key_offset;  // in k and v: the row of the sequence's first key, at the query's head

 private:
  static __device__ int head_of(const AttentionSizes& sizes, int row) {
    return row / sizes.sequence % sizes.heads;
  }
};

/// Returns the dot product of two rows of `count` elements, a multiple of `pack_size`.
template <int pack_size, typename T>
__device__ inline float row_dot(const T* a, const T* b, int count) {
  float sum = 0;
  for (int pack = 0; pack < count / pack_size; ++pack) {
    const Pack<T, pack_size> of_a = load_pack<pack_size>(a, pack);
    const Pack<T, pack_size> of_b = load_pack<pack_size>(b, pack);
    for (int i = 0; i < pack_size; ++i) {
      sum = fmaf(static_cast<float>(of_a.values[i]), static_cast<float>(of_b.values[i]), sum);
    }
  }
  return sum;
}

/// A lane's part of the sums of one row: channels lane, lane + kLanes, ..., at most `lane_channels`
/// of them.
template <int lane_channels>
struct ChannelSum {
  float values[lane_channels] = {};

  __device__ void scale(float factor) {
    for (int i = 0; i < lane_channels; ++i) values[i] *= factor;
  }
  /// Adds weight · row.
  template <typename T>
  __device__ void add(float weight, const T* row, int head_dim) {
    for (int i = 0; i < lane_channels; ++i) {
      const int channel = this_lane() + i * kLanes;
      if (channel < head_dim) values[i] = fmaf(weight, static_cast<float>(row[channel]), values[i]);
    }
  }
  /// Writes factor · sum to the row.
  template <typename T>
  __device__ void store(float factor, T* row, int head_dim) const {
    for (int i = 0; i < lane_channels; ++i) {
      const int channel = this_lane() + i * kLanes;
      if (channel < head_dim) row[channel] = round_to<T>(values[i] * factor);
    }
  }
};

/// The running softmax of a query over the keys so far: `greatest` is the greatest score, `total`
/// is Σ exp(score - greatest), and `sum` is Σ exp(score - greatest) · value.
template <int lane_channels>
struct RunningSoftmax {
  float greatest = -INFINITY;
  float total = 0;
  ChannelSum<lane_channels> sum;

  /// Adds the keys from first_key on, at most kLanes and only those below `end`, to the sums of a
  /// query. `weights` [kLanes] is shared memory of the warp.
  template <int pack_size, typename T>
  __device__ void absorb(const T* query, const T* keys, const T* values, int64_t stride,
                         int first_key, int end, const AttentionSizes& sizes, float* weights) {
    const int key = first_key + this_lane();
    const float score =
        key < end ? sizes.scale * row_dot<pack_size>(query, keys + key * stride, sizes.head_dim)
                  : -INFINITY;
    const float step_greatest = warp_max(score);
    const float new_greatest = greatest < step_greatest ? step_greatest : greatest;
    const float correction = expf(greatest - new_greatest);
    const float weight = expf(score - new_greatest);
    greatest = new_greatest;
    total = total * correction + warp_sum(weight);
    weights[this_lane()] = weight;
    wait_for_warp();
    sum.scale(correction);
    const int count = end - first_key < kLanes ? end - first_key : kLanes;
    const T* value = values + first_key * stride;
    for (int i = 0; i < count; ++i, value += stride) sum.add(weights[i], value, sizes.head_dim);
    wait_for_warp();  // before the weights are written again
  }
};

inline constexpr int kRowPack = 4;  // elements of a pack; more would take too many registers

/// Calls body(lane_channels, pack_size) with two compile-time constants: a bound of the channels of
/// a lane, and the number of elements that a lane loads at once. Arrays of constant size can stay
/// in registers.
template <typename T, typename Body>
void with_row_sizes(int head_dim, Body&& body) {
  const auto with_size = [&](auto lane_channels) {
    with_pack_size<kRowPack>(head_dim, [&](auto pack_size) { body(lane_channels, pack_size); });
  };
  if (head_dim <= kMostHeadDim / 4) {
    with_size(std::integral_constant<int, kMostHeadDim / 4 / kLanes>{});
  } else if (head_dim <= kMostHeadDim / 2) {
    with_size(std::integral_constant<int, kMostHeadDim / 2 / kLanes>{});
  } else {
    with_size(std::integral_constant<int, kMostHeadDim / kLanes>{});
  }
}

inline constexpr int kAttentionWarps = 4;  // warps of a block, with a row each

inline Grid rows_grid(int rows) {
  return {.blocks = (rows + kAttentionWarps - 1) / kAttentionWarps,
          .threads = kAttentionWarps * kLanes};
}

}  // namespace
}  // namespace tessera
