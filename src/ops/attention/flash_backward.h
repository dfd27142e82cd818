#pragma once

#include <algorithm>
#include <type_traits>

#include "base/round_up.h"
#include "ops/attention/attention_shape.h"
#include "ops/attention/flash_tiles.h"
#include "ops/attention/key_ranges.h"
#include "ops/attention/scratch.h"

namespace tessera {

/// The matrix products of tiles of some keys (rows) and some queries (columns). A tile is stored
/// transposed, keys by queries, so two of the three products that read it need no transposition.
using BackwardTable = TileTable<3>;

/// The memory layout of a tile's keys and queries.
struct BackwardLayout {
  DType dtype;
  int64_t head_dim;
  int64_t query_stride;
  int64_t key_stride;

  /// Returns the tile's products: k qᵀ (or v dOᵀ), [keys, head_dim] += dSᵀ q (or Pᵀ dO), and
  /// [queries, head_dim] += dS k.
  std::array<GemmShape, 3> products(int64_t keys, int64_t queries) const {
    GemmShape scores = tile_product(dtype, {keys, queries, head_dim},
                                    {key_stride, query_stride, kBackwardQueries});
    GemmShape key_gradients =
        tile_product(dtype, {keys, head_dim, queries}, {kBackwardQueries, query_stride, head_dim});
    GemmShape query_gradients =
        tile_product(dtype, {queries, head_dim, keys}, {kBackwardQueries, key_stride, head_dim});
    scores.transpose_b = query_gradients.transpose_a = true;
    key_gradients.accumulate = query_gradients.accumulate = true;
    return {scores, key_gradients, query_gradients};
  }
};

/// A tile of the backward pass: some keys of one block with one tile of queries, as row indices in
/// the sequence.
struct BackwardRange {
  int64_t first_key;
  int64_t keys;
  int64_t first_query;
  int64_t queries;
};

/// The division of one attention's work: a sequence's keys are cut into blocks of `keys_of_block`
/// keys, and its queries into tiles of kBackwardQueries.
struct BackwardBlocks {
  BackwardBlocks(const AttentionShape& sizes, int64_t keys_of_block)
      : shape(sizes),
        block_keys(keys_of_block),
        query_tiles((shape.sequence + kBackwardQueries - 1) / kBackwardQueries),
        key_blocks((shape.keys + keys_of_block - 1) / keys_of_block) {}

  int64_t queries(int64_t tile) const {
    return std::min(kBackwardQueries, shape.sequence - tile * kBackwardQueries);
  }
  int64_t keys(int64_t block) const {
    return std::min(block_keys, shape.keys - block * block_keys);
  }
  /// Returns the part of keys [attended_begin, attended_end) that is in a block, with the queries
  /// of a tile. The keys are widened to whole steps of kBackwardQueries, so tiles have few shapes.
  BackwardRange range(int64_t block, int64_t tile, int64_t attended_begin,
                      int64_t attended_end) const {
    const int64_t begin =
        std::max(block * block_keys, attended_begin / kBackwardQueries * kBackwardQueries);
    const int64_t end = std::min(
        {block * block_keys + keys(block), round_up(attended_end, kBackwardQueries), shape.keys});
    return {begin, end - begin, tile * kBackwardQueries, queries(tile)};
  }
  /// Visits the keys and queries of every shape of tile that can occur, some twice.
  template <typename Visit>
  void for_each_tile(Visit&& visit) const {
    const int64_t max_keys = std::min(shape.keys, block_keys);
    const int64_t rest_queries = shape.sequence % kBackwardQueries;
    const int64_t rest_keys = shape.keys % kBackwardQueries;
    for (const int64_t first_step : {kBackwardQueries, rest_keys}) {
      if (first_step == 0) continue;
      for (int64_t keys = first_step; keys <= max_keys; keys += kBackwardQueries) {
        // If aligned, only the last tile of queries attends to the keys after the last whole step.
        const bool by_whole_tiles = first_step != rest_keys || !shape.aligned;
        if (by_whole_tiles && shape.sequence >= kBackwardQueries) visit(keys, kBackwardQueries);
        if (rest_queries > 0) visit(keys, rest_queries);
      }
    }
  }

  AttentionShape shape;
  int64_t block_keys;
  int64_t query_tiles;
  int64_t key_blocks;
};

/// The memory that all threads share. A slot holds the sums of dQ of one key-value head until that
/// head is done. Then another head takes the slot.
struct BackwardSharedMemory {
  BackwardSharedMemory(Scratch& scratch, const AttentionShape& shape, const BackwardBlocks& blocks,
                       int64_t slots)
      : deltas(scratch.array<float>(shape.heads * shape.tokens())),
        query_gradients(
            scratch.array<float>(slots * shape.group_heads() * shape.sequence * shape.head_dim)),
        blocks_added(scratch.array<int32_t>(shape.sequences * shape.heads * blocks.query_tiles)),
        blocks_done(scratch.array<int32_t>(shape.sequences * shape.kv_heads)) {}

  float* deltas;           // [sequences * heads, sequence]: rowsum(dO · O)
  float* query_gradients;  // [slots, group, sequence, head_dim]: sums of dQ
  int32_t* blocks_added;   // [sequences, heads, query tiles]: the next block to add to dQ
  int32_t* blocks_done;    // [sequences, kv_heads]: the number of key blocks done
};

/// The memory of one thread.
template <typename T>
struct BackwardThreadMemory {
  BackwardThreadMemory(Scratch& scratch, int64_t block_keys, int64_t head_dim,
                       int64_t product_bytes)
      : scores(scratch.array<float>(block_keys * kBackwardQueries)),
        probability_gradients(scratch.array<float>(block_keys * kBackwardQueries)),
        key_gradients(scratch.array<float>(block_keys * head_dim)),
        value_gradients(scratch.array<float>(block_keys * head_dim)),
        product_workspace(scratch.array<std::byte>(product_bytes)) {
    if constexpr (std::is_same_v<T, float>) {
      probabilities = scores;
      score_gradients = probability_gradients;
    } else {
      probabilities = scratch.array<T>(block_keys * kBackwardQueries);
      score_gradients = scratch.array<T>(block_keys * kBackwardQueries);
    }
  }

  float* scores;                 // [block_keys, kBackwardQueries]
  float* probability_gradients;  // [block_keys, kBackwardQueries]
  float* key_gradients;          // [block_keys, head_dim]
  float* value_gradients;        // [block_keys, head_dim]
  std::byte* product_workspace;
  T* probabilities;    // [block_keys, kBackwardQueries]; in f32 the memory of scores
  T* score_gradients;  // [block_keys, kBackwardQueries]; in f32 the memory of probability_gradients
};

}  // namespace tessera
