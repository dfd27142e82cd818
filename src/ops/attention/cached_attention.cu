#include "ops/attention/attention_warp.h"

namespace tessera {
namespace {

// Attention of new tokens to caches on a device, in three kernels: append_rows() writes the new
// rows to the caches, attend_parts() computes softmax sums over parts of each query's keys, which
// keep the whole device busy even for one token, and join_parts() joins the sums.

constexpr int kSplitWarps = 8;  // warps of a block, which attends to one part of the keys

/// Writes the new rows of keys and values to the caches, up to their capacity.
template <typename T, int pack_size>
__global__ void append_rows(CachedAttentionForward<T> attention, int64_t packs) {
  const int64_t from = static_cast<int64_t>(blockIdx.x) * static_cast<int>(blockDim.x) +
                       static_cast<int>(threadIdx.x);
  const int width = attention.sizes.kv_heads * attention.sizes.head_dim / pack_size;
  const int64_t to = static_cast<int64_t>(*attention.position) * width + from;
  if (from >= packs || to < 0 || to >= attention.capacity * width) return;
  store_pack(attention.key_cache, to, load_pack<pack_size>(attention.k, from));
  store_pack(attention.value_cache, to, load_pack<pack_size>(attention.v, from));
}

/// Computes a RunningSoftmax over each part of the keys, with a block for each query of each head
/// (x) and each part of its keys (y). The warps take the part's keys in turn, kLanes at a time, and
/// then join their sums. A warp without keys is left out: its -inf - -inf would give NaN.
template <typename T, int lane_channels, int pack_size>
__global__ void __launch_bounds__(kSplitWarps* kLanes)
    attend_parts(CachedAttentionForward<T> attention) {
  __shared__ float weights[kSplitWarps][kLanes];
  __shared__ float greatest[kSplitWarps];
  __shared__ float totals[kSplitWarps];
  __shared__ float sums[kSplitWarps][kMostHeadDim];
  const AttentionSizes& sizes = attention.sizes;
  const QueryRow row(sizes, static_cast<int>(blockIdx.x));
  const int warp = this_warp();
  const int64_t stride = sizes.kv_heads * sizes.head_dim;
  const int attended = *attention.position + row.token + 1;  // keys
  const int end = attended < attention.capacity ? attended : attention.capacity;
  const int part_keys = (end + attention.splits - 1) / attention.splits;
  const int part_begin = static_cast<int>(blockIdx.y) * part_keys;
  const int part_end = part_begin + part_keys < end ? part_begin + part_keys : end;

  RunningSoftmax<lane_channels> softmax;
  for (int key = part_begin + warp * kLanes; key < part_end; key += kSplitWarps * kLanes) {
    softmax.template absorb<pack_size>(attention.q + row.offset,
                                  attention.key_cache + row.key_offset,
                                  attention.value_cache + row.key_offset, stride, key, part_end,
                                  sizes, weights[warp]);
  }
  softmax.sum.store(1.0f, sums[warp], sizes.head_dim);
  if (this_lane() == 0) {
    greatest[warp] = softmax.greatest;
    totals[warp] = softmax.total;
  }
  __syncthreads();

  float maximum = -INFINITY, total = 0;
  for (int i = 0; i < kSplitWarps; ++i) maximum = greatest[i] > maximum ? greatest[i] : maximum;
  float* const part = attention.parts + (static_cast<int64_t>(row.index) * attention.splits +
                                         static_cast<int>(blockIdx.y)) *
                                            (sizes.head_dim + 2);
  const int thread = static_cast<int>(threadIdx.x);
  for (int channel = thread; channel < sizes.head_dim; channel += kSplitWarps * kLanes) {
    float sum = 0;
    for (int i = 0; i < kSplitWarps; ++i) {
      if (totals[i] > 0) sum += sums[i][channel] * expf(greatest[i] - maximum);
    }
    part[channel] = sum;
  }
  if (thread == 0) {
    for (int i = 0; i < kSplitWarps; ++i) {
      if (totals[i] > 0) total += totals[i] * expf(greatest[i] - maximum);
    }
    part[sizes.head_dim] = maximum;
    part[sizes.head_dim + 1] = total;
  }
}

/// Writes output = Σ_p w_p sum_p / Σ_p w_p total_p over the parts p of a query's keys, where w_p =
/// exp(greatest_p - maximum), with a warp for each query of each head.
template <typename T>
__global__ void __launch_bounds__(kAttentionWarps* kLanes)
    join_parts(CachedAttentionForward<T> attention) {
  const AttentionSizes& sizes = attention.sizes;
  const QueryRow row = QueryRow::of_warp(sizes);
  if (!row.exists) return;
  const int64_t part_size = sizes.head_dim + 2;
  const float* const parts =
      attention.parts + static_cast<int64_t>(row.index) * attention.splits * part_size;
  float maximum = -INFINITY, total = 0;
  for (int p = 0; p < attention.splits; ++p) {
    const float greatest = parts[p * part_size + sizes.head_dim];
    maximum = greatest > maximum ? greatest : maximum;
  }
  const auto weight = [&](int p) {
    const float greatest = parts[p * part_size + sizes.head_dim];
    return greatest > -INFINITY ? expf(greatest - maximum) : 0.0f;
  };
  for (int p = 0; p < attention.splits; ++p) {
    total += parts[p * part_size + sizes.head_dim + 1] * weight(p);
  }
  for (int channel = this_lane(); channel < sizes.head_dim; channel += kLanes) {
    float sum = 0;
    for (int p = 0; p < attention.splits; ++p) {
      sum += parts[p * part_size + channel] * weight(p);
    }
    attention.output[row.offset + channel] = round_to<T>(sum / total);
  }
}

}  // namespace

template <typename Vendor, typename T>
void cached_attention_device(const CachedAttentionForward<T>& attention, Stream& stream) {
  const AttentionSizes& sizes = attention.sizes;
  const int rows = sizes.heads * sizes.sequence;
  with_row_sizes<T>(sizes.head_dim, [&](auto lane_channels, auto pack_size) {
    const int64_t packs =
        static_cast<int64_t>(sizes.sequence) * sizes.kv_heads * sizes.head_dim / pack_size;
    launch(append_rows<T, pack_size>, grid_of_elements<1>(packs), stream, attention, packs);
    launch(attend_parts<T, lane_channels, pack_size>,
           {.blocks = rows, .threads = kSplitWarps * kLanes, .blocks_y = attention.splits}, stream,
           attention);
  });
  launch(join_parts<T>, rows_grid(rows), stream, attention);
}

template void cached_attention_device<ThisVendor>(const CachedAttentionForward<float>&, Stream&);
template void cached_attention_device<ThisVendor>(const CachedAttentionForward<BFloat16>&, Stream&);

}  // namespace tessera
