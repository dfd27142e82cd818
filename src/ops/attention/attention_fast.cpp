#include "ops/attention/attention_fast.h"

#include "base/round_up.h"
#include "ops/attention/flash_forward.h"

// The forward pass of attention in tiles, on the processor. ForwardPlan finds the shapes of tiles,
// whose products are made first. A ForwardTile (flash_forward.h) computes queries of a head.

namespace tessera {
namespace {

/// The tiles of one attention on a target, and the workspace of their products.
struct ForwardPlan {
  ForwardPlan(const Target& target, const AttentionShape& sizes, DType dtype)
      : shape(sizes),
        tile_keys(AttentionTiles(target).forward_keys),
        layout{dtype, shape.head_dim, shape.query_stride(), shape.key_stride(), tile_keys} {
    for_each_tile([&](int64_t queries, int64_t keys) {
      product_bytes =
          std::max(product_bytes, largest_workspace(target, layout.products(queries, keys)));
    });
  }

  /// Visits every shape of tile that can occur, some twice. Keys begin at a multiple of
  /// kForwardQueries and end at another multiple or at the last key.
  template <typename Visit>
  void for_each_tile(Visit&& visit) const {
    const int64_t max_keys = std::min(shape.keys, tile_keys);
    const int64_t rest_queries = shape.sequence % kForwardQueries;
    const int64_t rest_keys = shape.keys % kForwardQueries;
    for (const int64_t queries : {kForwardQueries, rest_queries}) {
      if (queries == 0 || queries > shape.sequence) continue;
      for (const int64_t first_step : {kForwardQueries, rest_keys}) {
        if (first_step == 0) continue;
        // If aligned, a whole tile of queries ends at a multiple of kForwardQueries keys, and the
        // last tile, if it is shorter, ends at the last key.
        if (shape.aligned && (queries == rest_queries) != (first_step == rest_keys)) continue;
        for (int64_t keys = first_step; keys <= max_keys; keys += kForwardQueries) {
          visit(queries, keys);
        }
      }
      if (shape.keys >= tile_keys) visit(queries, tile_keys);
    }
  }

  /// Returns the workspace bytes of one thread.
  template <typename T>
  int64_t thread_bytes() const {
    return layout_bytes<ForwardTile<T>>(tile_keys, shape.head_dim, product_bytes);
  }

  AttentionShape shape;
  int64_t tile_keys;
  ForwardLayout layout;
  int64_t product_bytes = 0;
};

}  // namespace

template <typename T>
void attention_fast(Runtime& runtime, const AttentionShape& shape, const T* q, const T* k,
                    const T* v, const KeyRanges& ranges, T* output, float* log_sum_exp,
                    std::byte* workspace) {
  const ForwardPlan plan(runtime.target(), shape, dtype_of<T>);
  ForwardTable table;
  plan.for_each_tile([&](int64_t queries, int64_t keys) {
    table.add(runtime, queries, keys, plan.layout.products(queries, keys));
  });
  const int64_t tile_keys = plan.tile_keys;
  const int64_t thread_bytes = plan.thread_bytes<T>();
  const int64_t query_tiles = (shape.sequence + kForwardQueries - 1) / kForwardQueries;
  const int64_t items = shape.sequences * shape.heads * query_tiles;
  // The tiles of a head follow one another, the longest first: its keys and values stay in cache.
  parallel_items(runtime.threads(), items, [&](int64_t item, int thread) {
    const int64_t head_item = item / query_tiles;  // in [sequences, heads]
    const int64_t tile = query_tiles - 1 - item % query_tiles;
    const AttentionHead head(shape, head_item / shape.heads, head_item % shape.heads);
    const int64_t first_query = tile * kForwardQueries;
    const int64_t queries = std::min(kForwardQueries, shape.sequence - first_query);
    const KeyRanges attended = ranges.from(head.first_token + first_query);
    const int64_t query_offset = head.query_offset + first_query * shape.query_stride();

    Scratch scratch(workspace + thread * thread_bytes);
    ForwardTile<T> running(scratch, tile_keys, shape.head_dim, plan.product_bytes);
    running.start(q + query_offset, queries, attended, shape.scale);
    // The range of keys is widened to whole steps of kForwardQueries, so the shapes are few.
    const int64_t attended_end = attended.end[queries - 1];
    const int64_t end = std::min(round_up(attended_end, kForwardQueries), shape.keys);
    const int64_t begin = attended.begin[0] / kForwardQueries * kForwardQueries;
    for (int64_t key = begin; key < end; key += tile_keys) {
      const int64_t keys = std::min(tile_keys, end - key);
      const int64_t key_offset = head.key_offset + key * shape.key_stride();
      running.absorb(k + key_offset, v + key_offset, key, keys, *table.find(queries, keys));
    }
    running.finish(output + query_offset, queries, shape.query_stride(),
                   log_sum_exp + head.row_offset + first_query);
  });
}

int64_t attention_fast_workspace(const Target& target, const AttentionShape& shape, DType dtype) {
  const ForwardPlan plan(target, shape, dtype);
  return target.threads *
         (dtype == DType::bf16 ? plan.thread_bytes<BFloat16>() : plan.thread_bytes<float>());
}

template void attention_fast(Runtime&, const AttentionShape&, const float*, const float*,
                             const float*, const KeyRanges&, float*, float*, std::byte*);
template void attention_fast(Runtime&, const AttentionShape&, const BFloat16*, const BFloat16*,
                             const BFloat16*, const KeyRanges&, BFloat16*, float*, std::byte*);

}  // namespace tessera
