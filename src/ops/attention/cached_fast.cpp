#include <algorithm>
#include <numeric>

#include "base/round_up.h"
#include "ops/attention/attention_fast.h"
#include "ops/attention/flash_forward.h"

// Attention of new tokens to caches, on the processor. A few tokens (generation) are computed row
// by row: one query of one head at a time. Many tokens (a prompt) are computed in ForwardTiles, as
// in attention_fast(). Prompts differ in length, so tiles are padded to few shapes.

namespace tessera {
namespace {

/// From this number of new tokens on, tiles are faster than rows.
constexpr int64_t kTiledTokens = 8;
/// Tiles are padded with zeros to multiples of these sizes, so there are few shapes of products,
/// whatever the lengths of the prompts.
constexpr int64_t kQueryStep = 16;
constexpr int64_t kKeyStep = 64;

/// Computes attention of one query of one head to keys [0, count).
template <typename T>
void attend_row(const T* q, const T* keys, const T* values, int64_t stride, int64_t count,
                int64_t head_dim, float scale, float* scratch, T* output) {
  float* query = scratch;
  float* sums = scratch + head_dim;
  float* probabilities = scratch + 2 * head_dim;
  for (int64_t e = 0; e < head_dim; ++e) query[e] = static_cast<float>(q[e]) * scale;
  for (int64_t j = 0; j < count; ++j) {
    const T* key = keys + j * stride;
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t e = 0; e < head_dim; ++e) dot += query[e] * static_cast<float>(key[e]);
    probabilities[j] = dot;
  }
  float greatest = probabilities[0];
#pragma omp simd reduction(max : greatest)
  for (int64_t j = 0; j < count; ++j) {
    greatest = greatest < probabilities[j] ? probabilities[j] : greatest;
  }
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t j = 0; j < count; ++j) {
    probabilities[j] = exp_softmax(probabilities[j] - greatest);
    total += probabilities[j];
  }
  std::fill_n(sums, head_dim, 0.0f);
  for (int64_t j = 0; j < count; ++j) {
    const T* value = values + j * stride;
    const float probability = probabilities[j];
#pragma omp simd
    for (int64_t e = 0; e < head_dim; ++e) sums[e] += probability * static_cast<float>(value[e]);
  }
  for (int64_t e = 0; e < head_dim; ++e) output[e] = static_cast<T>(sums[e] / total);
}

/// Computes attention row by row. `scratch` has capacity + 2 · head_dim elements for each thread.
template <typename T>
void attend_rows(Runtime& runtime, const AttentionShape& shape,
                 const CachedAttentionOperands<T>& operands, float* scratch) {
  const int64_t thread_elements = operands.capacity + 2 * shape.head_dim;
  const int64_t grain = row_grain((operands.position + 1) * shape.head_dim);
  parallel_ranges(runtime.threads(), shape.heads * shape.sequence, grain,
                  [&](int64_t begin, int64_t end, int thread) {
                    for (int64_t item = begin; item < end; ++item) {
                      const int64_t token = item % shape.sequence;
                      const AttentionHead head(shape, 0, item / shape.sequence);
                      const int64_t offset = head.query_offset + token * shape.query_stride();
                      attend_row(operands.q + offset, operands.keys + head.key_offset,
                                 operands.values + head.key_offset, shape.key_stride(),
                                 operands.position + token + 1, shape.head_dim,
                                 static_cast<float>(shape.scale),
                                 scratch + thread * thread_elements, operands.output + offset);
                    }
                  });
}

/// Copies `rows` rows without gaps, and appends rows of zeros up to `padded` rows. Returns `to`.
template <typename T>
const T* gather_rows(const T* from, int64_t stride, int64_t rows, int64_t padded, int64_t columns,
                     T* to) {
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * stride, columns, to + i * columns);
  std::fill_n(to + rows * columns, (padded - rows) * columns, T{});
  return to;
}

/// The tiles of new tokens and caches of `capacity` rows on a target. Whole tiles of keys are read
/// from the cache itself, and the last tile is copied.
struct CachedPlan {
  CachedPlan(const Target& target, const AttentionShape& shape, DType dtype, int64_t capacity_rows)
      : tile_keys(AttentionTiles(target).forward_keys),
        whole{dtype, shape.head_dim, shape.head_dim, shape.key_stride(), tile_keys},
        last{dtype, shape.head_dim, shape.head_dim, shape.head_dim, tile_keys},
        tokens(shape.sequence),
        capacity(capacity_rows) {
    for_each_tile([&](const ForwardLayout& layout, int64_t queries, int64_t keys) {
      product_bytes =
          std::max(product_bytes, largest_workspace(target, layout.products(queries, keys)));
    });
  }

  /// Visits the layout (`whole` or `last`), the queries and the keys of each tile.
  template <typename Visit>
  void for_each_tile(Visit&& visit) const {
    for (const int64_t queries : {std::min(tokens, kForwardQueries), tokens % kForwardQueries}) {
      if (queries == 0) continue;
      const int64_t padded = round_up(queries, kQueryStep);
      if (capacity >= tile_keys) visit(whole, padded, tile_keys);
      const int64_t max_keys = std::min(tile_keys, round_up(capacity, kKeyStep));
      for (int64_t keys = kKeyStep; keys <= max_keys; keys += kKeyStep) visit(last, padded, keys);
    }
  }

  int64_t tile_keys;
  ForwardLayout whole;
  ForwardLayout last;
  int64_t tokens;
  int64_t capacity;
  int64_t product_bytes = 0;
};

/// The memory of one thread.
template <typename T>
struct CachedScratch {
  CachedScratch(Scratch& scratch, int64_t tile_keys, int64_t head_dim, int64_t product_bytes)
      : tile(scratch, tile_keys, head_dim, product_bytes),
        queries(scratch.array<T>(kForwardQueries * head_dim)),
        keys(scratch.array<T>(tile_keys * head_dim)),
        values(scratch.array<T>(tile_keys * head_dim)),
        range_begin(scratch.array<int32_t>(kForwardQueries)),
        range_end(scratch.array<int32_t>(kForwardQueries)) {}

  /// Returns the ranges of queries from `position` on: each has all keys up to the query itself.
  KeyRanges ranges_from(int64_t position) const {
    std::fill_n(range_begin, kForwardQueries, 0);
    std::iota(range_end, range_end + kForwardQueries, static_cast<int32_t>(position + 1));
    return {range_begin, range_end};
  }

  ForwardTile<T> tile;
  T* queries;            // [kForwardQueries, head_dim]
  T* keys;               // [tile_keys, head_dim]
  T* values;             // [tile_keys, head_dim]
  int32_t* range_begin;  // [kForwardQueries]
  int32_t* range_end;    // [kForwardQueries]
};

template <typename T>
int64_t cached_scratch_bytes(const CachedPlan& plan, int64_t head_dim) {
  return layout_bytes<CachedScratch<T>>(plan.tile_keys, head_dim, plan.product_bytes);
}

/// Computes attention in tiles of queries of one head. The tile with the most keys comes first.
template <typename T>
void attend_tiles(Runtime& runtime, const AttentionShape& shape,
                  const CachedAttentionOperands<T>& operands, std::byte* workspace) {
  const CachedPlan plan(runtime.target(), shape, dtype_of<T>, operands.capacity);
  ForwardTable whole_table, last_table;
  plan.for_each_tile([&](const ForwardLayout& layout, int64_t queries, int64_t keys) {
    ForwardTable& table = &layout == &plan.whole ? whole_table : last_table;
    table.add(runtime, queries, keys, layout.products(queries, keys));
  });
  const int64_t tile_keys = plan.tile_keys;
  const int64_t thread_bytes = cached_scratch_bytes<T>(plan, shape.head_dim);
  const int64_t query_tiles = (shape.sequence + kForwardQueries - 1) / kForwardQueries;
  parallel_items(runtime.threads(), shape.heads * query_tiles, [&](int64_t item, int thread) {
    const AttentionHead head(shape, 0, item / query_tiles);
    const int64_t query = (query_tiles - 1 - item % query_tiles) * kForwardQueries;
    const int64_t queries = std::min(kForwardQueries, shape.sequence - query);
    const int64_t padded = round_up(queries, kQueryStep);
    const int64_t query_offset = head.query_offset + query * shape.query_stride();
    const T* keys = operands.keys + head.key_offset;
    const T* values = operands.values + head.key_offset;

    Scratch scratch(workspace + thread * thread_bytes);
    CachedScratch<T> memory(scratch, tile_keys, shape.head_dim, plan.product_bytes);
    memory.tile.start(gather_rows(operands.q + query_offset, shape.query_stride(), queries, padded,
                                  shape.head_dim, memory.queries),
                      padded, memory.ranges_from(operands.position + query), shape.scale);
    const int64_t end = operands.position + query + queries;
    int64_t key = 0;
    for (; key + tile_keys <= end; key += tile_keys) {
      const int64_t offset = key * shape.key_stride();
      memory.tile.absorb(keys + offset, values + offset, key, tile_keys,
                         *whole_table.find(padded, tile_keys));
    }
    if (key < end) {
      const int64_t offset = key * shape.key_stride();
      const int64_t columns = round_up(end - key, kKeyStep);
      const auto gather = [&](const T* from, T* to) {
        return gather_rows(from + offset, shape.key_stride(), end - key, columns, shape.head_dim,
                           to);
      };
      memory.tile.absorb(gather(keys, memory.keys), gather(values, memory.values), key, columns,
                         *last_table.find(padded, columns));
    }
    memory.tile.finish(operands.output + query_offset, queries, shape.query_stride(), nullptr);
  });
}

}  // namespace

template <typename T>
void cached_attention_fast(Runtime& runtime, const AttentionShape& shape,
                           const CachedAttentionOperands<T>& operands, std::byte* workspace) {
  if (shape.sequence < kTiledTokens) {
    attend_rows(runtime, shape, operands, reinterpret_cast<float*>(workspace));
  } else {
    attend_tiles(runtime, shape, operands, workspace);
  }
}

int64_t cached_attention_fast_workspace(const Target& target, const AttentionShape& shape,
                                        DType dtype, int64_t capacity) {
  if (shape.sequence < kTiledTokens) {
    return target.threads * (capacity + 2 * shape.head_dim) * static_cast<int64_t>(sizeof(float));
  }
  const CachedPlan plan(target, shape, dtype, capacity);
  return target.threads * (dtype == DType::bf16
                               ? cached_scratch_bytes<BFloat16>(plan, shape.head_dim)
                               : cached_scratch_bytes<float>(plan, shape.head_dim));
}

template void cached_attention_fast(Runtime&, const AttentionShape&,
                                    const CachedAttentionOperands<float>&, std::byte*);
template void cached_attention_fast(Runtime&, const AttentionShape&,
                                    const CachedAttentionOperands<BFloat16>&, std::byte*);

}  // namespace tessera
