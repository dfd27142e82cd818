#include "ops/attention/attention_fast.h"

#include "ops/attention/flash_forward.h"
#include "ops/attention/tile_sizes.h"

namespace tessera {
namespace {

using ForwardTable = TileTable<ForwardProducts>;

int64_t keys_of_tile(Context& context) { return context.cache<AttentionTiles>().forward_keys; }

/// All shapes of tiles that a sequence can have: keys begin at a multiple of kForwardQueries and
/// are cut off at the end of the query tile.
ForwardTable forward_table(Context& context, const AttentionShape& shape, DType dtype) {
  ForwardTable table;
  const int64_t tile_keys = keys_of_tile(context);
  const ForwardLayout layout{dtype, shape.head_dim, shape.query_stride(), shape.key_stride(),
                             tile_keys};
  const int64_t limit = std::min(shape.sequence, tile_keys);
  const auto add = [&](int64_t rows) {
    if (rows == 0 || rows > shape.sequence) return;
    const auto make = [&](int64_t tile_rows, int64_t columns) {
      return prepare_forward_products(context, layout, tile_rows, columns);
    };
    for (int64_t keys = rows; keys <= limit; keys += kForwardQueries) table.add(rows, keys, make);
    if (shape.sequence >= tile_keys) table.add(rows, tile_keys, make);
  };
  add(kForwardQueries);
  add(shape.sequence % kForwardQueries);
  return table;
}

template <typename T>
ForwardTile<T> forward_tile(Scratch& scratch, const AttentionShape& shape, int64_t tile_keys,
                            int64_t product_bytes) {
  return ForwardTile<T>(scratch, kForwardQueries, tile_keys, shape.head_dim, product_bytes);
}

template <typename T>
int64_t forward_tile_bytes(const AttentionShape& shape, int64_t tile_keys, int64_t product_bytes) {
  Scratch size;
  forward_tile<T>(size, shape, tile_keys, product_bytes);
  return size.bytes();
}

}  // namespace

template <typename T>
void attention_fast(Context& context, const AttentionShape& shape, const T* q, const T* k,
                    const T* v, const int32_t* document_starts, T* output, float* log_sum_exp,
                    std::byte* workspace) {
  const ForwardTable table = forward_table(context, shape, dtype_of<T>);
  const int64_t product_bytes = table.workspace_bytes();
  const int64_t tile_keys = keys_of_tile(context);
  const int64_t thread_bytes = forward_tile_bytes<T>(shape, tile_keys, product_bytes);
  const int64_t query_tiles = (shape.sequence + kForwardQueries - 1) / kForwardQueries;
  const int64_t items = shape.sequences * shape.heads * query_tiles;
  // A head's tiles follow one another, so that its keys and values stay in cache, the longest
  // first.
  parallel_items(context.threads(), items, [&](int64_t item, int thread) {
    const int64_t head_index = item / query_tiles;
    const int64_t tile = query_tiles - 1 - item % query_tiles;
    const AttentionHead head(shape, head_index / shape.heads, head_index % shape.heads);
    const int64_t query = tile * kForwardQueries;
    const int64_t queries = std::min(kForwardQueries, shape.sequence - query);
    const int32_t* starts = document_starts ? document_starts + head.first_token + query : nullptr;
    const int64_t earliest = starts ? *std::min_element(starts, starts + queries) : 0;
    const int64_t row = head.query_offset + query * shape.query_stride();

    Scratch scratch(workspace + thread * thread_bytes);
    ForwardTile<T> running = forward_tile<T>(scratch, shape, tile_keys, product_bytes);
    running.start(q + row, queries, query, starts, shape.scale);
    const int64_t end = query + queries;
    for (int64_t key = earliest / kForwardQueries * kForwardQueries; key < end; key += tile_keys) {
      const int64_t columns = std::min(tile_keys, end - key);
      const int64_t at = head.key_offset + key * shape.key_stride();
      running.absorb(k + at, v + at, key, columns, *table.find(queries, columns));
    }
    running.finish(output + row, queries, shape.query_stride(),
                   log_sum_exp + head.row_offset + query);
  });
}

int64_t attention_fast_workspace(Context& context, const AttentionShape& shape, DType dtype) {
  const int64_t product_bytes = forward_table(context, shape, dtype).workspace_bytes();
  const int64_t tile_keys = keys_of_tile(context);
  return context.threads() * (dtype == DType::bf16
                                  ? forward_tile_bytes<BFloat16>(shape, tile_keys, product_bytes)
                                  : forward_tile_bytes<float>(shape, tile_keys, product_bytes));
}

template void attention_fast(Context&, const AttentionShape&, const float*, const float*,
                             const float*, const int32_t*, float*, float*, std::byte*);
template void attention_fast(Context&, const AttentionShape&, const BFloat16*, const BFloat16*,
                             const BFloat16*, const int32_t*, BFloat16*, float*, std::byte*);

}  // namespace tessera
