#include "ops/attention/attention_warp.h"

// The plain backward pass of attention on a device (see attention_gradient_plain()), in three
// kernels. The first writes delta. In the second, a warp for each query sums dQ over its keys. In
// the third, a warp for each key sums dK and dV over its queries. The last two both compute the
// probabilities again, so each row of a gradient has one writer, and no sum needs atomics. The 1 in
// their __launch_bounds__ lets one block take all registers of a multiprocessor, so none spill.

namespace tessera {
namespace {

/// P and scale · dS of one query and one key.
struct ScorePair {
  float probability;
  float score_gradient;
};

/// Computes the pair from the row of a query at `query_offset` and that of a key at `key_offset`.
/// `query_index` is the query's index in [sequences · heads, sequence].
template <int pack_size, typename T>
__device__ inline ScorePair score_pair(const AttentionBackward<T>& attention, int64_t query_offset,
                                       int64_t key_offset, int query_index) {
  const AttentionSizes& sizes = attention.sizes;
  const float score = sizes.scale * row_dot<pack_size>(attention.q + query_offset,
                                                       attention.k + key_offset, sizes.head_dim);
  const float probability = expf(score - attention.log_sum_exp[query_index]);
  const float probability_gradient = row_dot<pack_size>(
      attention.output_gradient + query_offset, attention.v + key_offset, sizes.head_dim);
  const float difference = probability_gradient - attention.delta[query_index];
  return {probability, probability * difference * sizes.scale};
}

/// Writes delta = rowsum(dO · O), with a warp for each query of each head.
template <typename T>
__global__ void __launch_bounds__(kAttentionWarps* kLanes)
    sum_deltas(AttentionBackward<T> attention) {
  const AttentionSizes& sizes = attention.sizes;
  const QueryRow row = QueryRow::of_warp(sizes);
  if (!row.exists) return;
  float sum = 0;
  for (int channel = this_lane(); channel < sizes.head_dim; channel += kLanes) {
    sum += static_cast<float>(attention.output_gradient[row.offset + channel]) *
           static_cast<float>(attention.output[row.offset + channel]);
  }
  sum = warp_sum(sum);
  if (this_lane() == 0) attention.delta[row.index] = sum;
}

/// Writes dQ = scale · dS K, with a warp for each query of each head.
template <typename T, int lane_channels, int pack_size>
__global__ void __launch_bounds__(kAttentionWarps* kLanes, 1)
    sum_query_gradients(AttentionBackward<T> attention) {
  __shared__ float weights[kAttentionWarps][kLanes];
  const AttentionSizes& sizes = attention.sizes;
  const QueryRow row = QueryRow::of_warp(sizes);
  if (!row.exists) return;
  const int64_t stride = sizes.kv_heads * sizes.head_dim;
  const int end = attention.end[row.token];
  float* const warp_weights = weights[this_warp()];

  ChannelSum<lane_channels> sum;
  for (int key = attention.begin[row.token]; key < end; key += kLanes) {
    const int lane_key = key + this_lane();
    if (lane_key < end) {
      warp_weights[this_lane()] =
          score_pair<pack_size>(attention, row.offset, row.key_offset + lane_key * stride,
                                row.index)
              .score_gradient;
    }
    wait_for_warp();
    const int count = end - key < kLanes ? end - key : kLanes;
    const T* key_row = attention.k + row.key_offset + key * stride;
    for (int i = 0; i < count; ++i, key_row += stride) {
      sum.add(warp_weights[i], key_row, sizes.head_dim);
    }
    wait_for_warp();  // before the weights are written again
  }
  sum.store(1.0f, attention.q_gradient + row.offset, sizes.head_dim);
}

/// Writes dV = Pᵀ dO and dK = scale · dSᵀ Q, with a warp for each key of each key-value head. The
/// queries that attend to a key follow one another, because the ranges of keys ascend.
template <typename T, int lane_channels, int pack_size>
__global__ void __launch_bounds__(kAttentionWarps* kLanes, 1)
    sum_key_gradients(AttentionBackward<T> attention) {
  __shared__ ScorePair pairs[kAttentionWarps][kLanes];
  const AttentionSizes& sizes = attention.sizes;
  const int index = row_of_warp();
  if (index >= sizes.sequences * sizes.kv_heads * sizes.keys) return;
  const int key = index % sizes.keys;
  const int kv_head = index / sizes.keys % sizes.kv_heads;
  const int sequence_index = index / (sizes.keys * sizes.kv_heads);
  const int64_t key_offset =
      (static_cast<int64_t>(sequence_index * sizes.keys + key) * sizes.kv_heads + kv_head) *
      sizes.head_dim;
  const int first_token = sequence_index * sizes.sequence;
  const auto first_above_key = [&](const int32_t* bounds) {
    return first_not_below(bounds + first_token, 0, sizes.sequence, key + 1);
  };
  const int queries_begin = first_above_key(attention.end);
  const int queries_end = first_above_key(attention.begin);
  const int group = sizes.heads / sizes.kv_heads;
  ScorePair* const warp_pairs = pairs[this_warp()];

  ChannelSum<lane_channels> key_gradient, value_gradient;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const int first_index = (sequence_index * sizes.heads + head) * sizes.sequence;
    const auto query_offset = [&](int query) {
      return (static_cast<int64_t>(first_token + query) * sizes.heads + head) * sizes.head_dim;
    };
    for (int query = queries_begin; query < queries_end; query += kLanes) {
      const int lane_query = query + this_lane();
      if (lane_query < queries_end) {
        warp_pairs[this_lane()] = score_pair<pack_size>(attention, query_offset(lane_query),
                                                        key_offset, first_index + lane_query);
      }
      wait_for_warp();
      const int count = queries_end - query < kLanes ? queries_end - query : kLanes;
      const int64_t offset = query_offset(query);
      const int64_t stride = static_cast<int64_t>(sizes.heads) * sizes.head_dim;
      // One sum after the other: both at once would take more registers than there are.
      const T* gradient_row = attention.output_gradient + offset;
      for (int i = 0; i < count; ++i, gradient_row += stride) {
        value_gradient.add(warp_pairs[i].probability, gradient_row, sizes.head_dim);
      }
      const T* query_row = attention.q + offset;
      for (int i = 0; i < count; ++i, query_row += stride) {
        key_gradient.add(warp_pairs[i].score_gradient, query_row, sizes.head_dim);
      }
      wait_for_warp();  // before the pairs are written again
    }
  }
  key_gradient.store(1.0f, attention.k_gradient + key_offset, sizes.head_dim);
  value_gradient.store(1.0f, attention.v_gradient + key_offset, sizes.head_dim);
}

}  // namespace

template <typename Vendor, typename T>
void attention_gradient_device(const AttentionBackward<T>& attention, Stream& stream) {
  const AttentionSizes& sizes = attention.sizes;
  const Grid queries = rows_grid(sizes.sequences * sizes.heads * sizes.sequence);
  launch(sum_deltas<T>, queries, stream, attention);
  with_row_sizes<T>(sizes.head_dim, [&](auto lane_channels, auto pack_size) {
    launch(sum_query_gradients<T, lane_channels, pack_size>, queries, stream, attention);
    launch(sum_key_gradients<T, lane_channels, pack_size>,
           rows_grid(sizes.sequences * sizes.kv_heads * sizes.keys), stream, attention);
  });
}

template void attention_gradient_device<ThisVendor>(const AttentionBackward<float>&, Stream&);
template void attention_gradient_device<ThisVendor>(const AttentionBackward<BFloat16>&, Stream&);

}  // namespace tessera
