#include "ops/attention/attention_warp.h"

namespace tessera {
namespace {

/// Finds the keys that each query attends to (see fill_key_ranges()), with a thread for each query.
__global__ void find_key_ranges(KeyRangeSearch search) {
  const AttentionSizes& sizes = search.sizes;
  const int token = static_cast<int>(blockIdx.x) * static_cast<int>(blockDim.x) +
                    static_cast<int>(threadIdx.x);
  if (token >= sizes.sequences * sizes.sequence) return;
  const int sequence_index = token / sizes.sequence;
  const int32_t* const keys =
      search.key_positions == nullptr
          ? nullptr
          : search.key_positions + static_cast<int64_t>(sequence_index) * sizes.keys;
  const int64_t position =
      search.positions == nullptr ? token % sizes.sequence : search.positions[token];
  const int64_t start = search.document_starts == nullptr ? 0 : search.document_starts[token];
  const auto first_key_from = [&](int64_t bound) -> int64_t {
    if (keys != nullptr) return first_not_below(keys, 0, sizes.keys, bound);
    return bound < sizes.keys ? bound : sizes.keys;
  };
  const int64_t begin = first_key_from(start);
  const int64_t end = first_key_from(position + 1);
  search.begin[token] = static_cast<int32_t>(begin < end ? begin : end);
  search.end[token] = static_cast<int32_t>(end);
}

/// Computes attention (see attention_plain()), with a warp for each query of each head.
template <typename T, int lane_channels, int pack_size>
__global__ void __launch_bounds__(kAttentionWarps* kLanes)
    attend_rows(AttentionForward<T> attention) {
  __shared__ float weights[kAttentionWarps][kLanes];
  const AttentionSizes& sizes = attention.sizes;
  const QueryRow row = QueryRow::of_warp(sizes);
  if (!row.exists) return;
  const int64_t stride = sizes.kv_heads * sizes.head_dim;
  const int end = attention.end[row.token];

  RunningSoftmax<lane_channels> softmax;
  for (int key = attention.begin[row.token]; key < end; key += kLanes) {
    softmax.template absorb<pack_size>(attention.q + row.offset, attention.k + row.key_offset,
                                  attention.v + row.key_offset, stride, key, end, sizes,
                                  weights[this_warp()]);
  }
  const bool attends = softmax.total > 0;
  softmax.sum.store(attends ? 1 / softmax.total : 0.0f, attention.output + row.offset,
                    sizes.head_dim);
  if (this_lane() == 0) {
    attention.log_sum_exp[row.index] =
        attends ? softmax.greatest + logf(softmax.total) : -INFINITY;
  }
}

}  // namespace

template <typename Vendor>
void key_ranges_device(const KeyRangeSearch& search, Stream& stream) {
  constexpr int kThreads = 256;
  const int64_t tokens = search.sizes.sequences * search.sizes.sequence;
  launch(find_key_ranges, {.blocks = (tokens + kThreads - 1) / kThreads, .threads = kThreads},
         stream, search);
}

template <typename Vendor, typename T>
void attention_device(const AttentionForward<T>& attention, Stream& stream) {
  const AttentionSizes& sizes = attention.sizes;
  with_row_sizes<T>(sizes.head_dim, [&](auto lane_channels, auto pack_size) {
    launch(attend_rows<T, lane_channels, pack_size>,
           rows_grid(sizes.sequences * sizes.heads * sizes.sequence), stream, attention);
  });
}

template void key_ranges_device<ThisVendor>(const KeyRangeSearch&, Stream&);
template void attention_device<ThisVendor>(const AttentionForward<float>&, Stream&);
template void attention_device<ThisVendor>(const AttentionForward<BFloat16>&, Stream&);

}  // namespace tessera
