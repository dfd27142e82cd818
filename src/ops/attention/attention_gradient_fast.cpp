#include <atomic>
#include <cmath>
#include <thread>

#include "ops/attention/attention_fast.h"
#include "ops/attention/flash_backward.h"
#include "ops/math/vector_math.h"

// The backward pass of attention in tiles, on the processor. A work item is a block of keys of a
// key-value head. Its thread alone sums the dK and dV of these keys; all blocks add to the dQ of a
// query, in order. flash_backward.h has the blocks, the tiles' products and the memory.

namespace tessera {
namespace {

/// Waits until another thread sets the counter to `value` by publish().
void wait_for(int32_t& counter, int64_t value) {
  const std::atomic_ref<int32_t> shared(counter);
  while (shared.load(std::memory_order_acquire) != value) std::this_thread::yield();
}

/// Sets the counter to `value`, which makes what this thread has written before visible to waiting
/// threads.
void publish(int32_t& counter, int64_t value) {
  std::atomic_ref<int32_t>(counter).store(static_cast<int32_t>(value), std::memory_order_release);
}

/// Writes factor · from [rows, columns] to rows that are `stride` elements apart.
template <typename T>
void write_scaled(const float* from, int64_t rows, int64_t columns, float factor, T* to,
                  int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t e = 0; e < columns; ++e) {
      to[i * stride + e] = static_cast<T>(from[i * columns + e] * factor);
    }
  }
}

/// Returns Σ_e first_e · second_e, summed in order with explicit fused multiply-adds. So the bits
/// do not depend on the compiler's choices.
template <typename T>
float row_product(const T* first, const T* second, int64_t count) {
  float sum = 0;
  for (int64_t e = 0; e < count; ++e) {
    sum = std::fma(static_cast<float>(first[e]), static_cast<float>(second[e]), sum);
  }
  return sum;
}

/// The blocks, tiles and memory of one backward pass on a target.
template <typename T>
struct BackwardPlan {
  BackwardPlan(const Target& target, const AttentionShape& shape)
      : blocks(shape, AttentionTiles(target).backward_keys),
        layout{dtype_of<T>, shape.head_dim, shape.query_stride(), shape.key_stride()},
        slots(std::min<int64_t>(shape.sequences * shape.kv_heads, target.threads)) {
    blocks.for_each_tile([&](int64_t keys, int64_t queries) {
      product_bytes =
          std::max(product_bytes, largest_workspace(target, layout.products(keys, queries)));
    });
    shared_bytes = layout_bytes<BackwardSharedMemory>(shape, blocks, slots);
    thread_bytes =
        layout_bytes<BackwardThreadMemory<T>>(blocks.block_keys, shape.head_dim, product_bytes);
    workspace_bytes = shared_bytes + thread_bytes * target.threads;
  }

  BackwardBlocks blocks;
  BackwardLayout layout;
  int64_t slots;  // key-value heads in flight, each with its sums of dQ
  int64_t product_bytes = 0;
  int64_t shared_bytes = 0;
  int64_t thread_bytes = 0;
  int64_t workspace_bytes = 0;
};

/// The backward pass of attention_gradient_plain() in tiles. A work item is a block of keys of one
/// key-value head: it sums the dK and dV of these keys, and adds its share to the dQ of the queries
/// that attend to them. The shares of one dQ are added in the order of the blocks: each item waits
/// for the block before its own. So the result does not depend on the threads. This cannot
/// deadlock: items are taken in order, so some thread already has the item of the block before.
template <typename T>
class FlashBackward {
 public:
  FlashBackward(Runtime& runtime, const AttentionShape& shape,
                const AttentionGradientOperands<T>& operands, std::byte* workspace)
      : runtime_(runtime),
        shape_(shape),
        operands_(operands),
        plan_(runtime.target(), shape),
        blocks_(plan_.blocks),
        heads_(shape.sequences * shape.kv_heads),
        scratch_(workspace),
        shared_(scratch_, shape, blocks_, plan_.slots),
        thread_scratch_begin_(workspace + plan_.shared_bytes) {
    blocks_.for_each_tile([&](int64_t keys, int64_t queries) {
      table_.add(runtime, keys, queries, plan_.layout.products(keys, queries));
    });
  }

  void run() {
    compute_deltas();
    prepare_tiles();
    std::atomic<int64_t> next_item{0};
    const int threads = runtime_.threads();
    parallel_ranges(threads, threads, 1, [&](int64_t, int64_t, int thread) {
      Scratch scratch(thread_scratch_begin_ + thread * plan_.thread_bytes);
      const BackwardThreadMemory<T> memory(scratch, blocks_.block_keys, shape_.head_dim,
                                           plan_.product_bytes);
      const int64_t items = heads_ * blocks_.key_blocks;
      for (int64_t item = next_item++; item < items; item = next_item++) {
        // Items come in rounds of `slots` key-value heads. In a round the blocks of its heads
        // alternate, so threads rarely wait.
        const int64_t first_head = item / (plan_.slots * blocks_.key_blocks) * plan_.slots;
        const int64_t round_heads = std::min(plan_.slots, heads_ - first_head);
        const int64_t round_item = item - first_head * blocks_.key_blocks;
        add_key_block(first_head + round_item % round_heads, round_item / round_heads, memory);
      }
    });
  }

 private:
  /// Computes delta = rowsum(dO · O) of each query of each head.
  void compute_deltas() {
    parallel_ranges(
        runtime_.threads(), shape_.tokens(), row_grain(shape_.query_stride()),
        [&](int64_t begin, int64_t end, int) {
          for (int64_t head = 0; head < shape_.heads; ++head) {
            for (int64_t token = begin; token < end; ++token) {
              const AttentionHead offsets(shape_, token / shape_.sequence, head);
              const int64_t offset = token * shape_.query_stride() + head * shape_.head_dim;
              shared_.deltas[offsets.row_offset + token % shape_.sequence] = row_product(
                  operands_.output_gradient + offset, operands_.output + offset, shape_.head_dim);
            }
          }
        });
  }

  /// The keys [first, end) that a tile of queries of one sequence attends to, and their blocks.
  struct TileKeys {
    int64_t first;
    int64_t end;
    int64_t first_block;
    int64_t last_block;    // below first_block if the tile attends to nothing
    int64_t latest_first;  // the latest first key of a query of the tile
  };

  // The ranges ascend, so the first query has the first key and the last query the last.
  TileKeys keys_of(int64_t sequence, int64_t tile) const {
    const KeyRanges ranges =
        operands_.ranges.from(sequence * shape_.sequence + tile * kBackwardQueries);
    const int64_t last_query = blocks_.queries(tile) - 1;
    const int64_t first = ranges.begin[0], end = ranges.end[last_query];
    const int64_t first_block = first / blocks_.block_keys;
    const int64_t last_block = first < end ? (end - 1) / blocks_.block_keys : first_block - 1;
    return {first, end, first_block, last_block, ranges.begin[last_query]};
  }

  /// Resets the counters, and zeroes the gradient of tiles whose queries attend to nothing.
  void prepare_tiles() {
    for (int64_t index = 0; index < shape_.sequences * blocks_.query_tiles; ++index) {
      const int64_t sequence = index / blocks_.query_tiles;
      const int64_t tile = index % blocks_.query_tiles;
      const TileKeys keys = keys_of(sequence, tile);
      if (keys.last_block < keys.first_block) {
        const int64_t token = sequence * shape_.sequence + tile * kBackwardQueries;
        std::fill_n(operands_.q_gradient + token * shape_.query_stride(),
                    blocks_.queries(tile) * shape_.query_stride(), T{});
      }
      for (int64_t head = 0; head < shape_.heads; ++head) {
        shared_.blocks_added[(sequence * shape_.heads + head) * blocks_.query_tiles + tile] =
            static_cast<int32_t>(keys.first_block);
      }
    }
    std::fill_n(shared_.blocks_done, heads_, 0);
  }

  /// Does one work item: computes dK and dV of a block of keys, and adds its share to dQ.
  void add_key_block(int64_t kv_head, int64_t block, const BackwardThreadMemory<T>& memory) {
    // The head that is `slots` heads before this one used the same slot. It must be done first.
    if (kv_head >= plan_.slots)
      wait_for(shared_.blocks_done[kv_head - plan_.slots], blocks_.key_blocks);
    const int64_t sequence = kv_head / shape_.kv_heads;
    const int64_t first_head = kv_head % shape_.kv_heads * shape_.group_heads();
    const int64_t keys = blocks_.keys(block);
    std::fill_n(memory.key_gradients, keys * shape_.head_dim, 0.0f);
    std::fill_n(memory.value_gradients, keys * shape_.head_dim, 0.0f);
    for (int64_t member = 0; member < shape_.group_heads(); ++member) {
      const AttentionHead head(shape_, sequence, first_head + member);
      const int64_t slot = kv_head % plan_.slots * shape_.group_heads() + member;
      for (int64_t tile = 0; tile < blocks_.query_tiles; ++tile) {
        const TileKeys attended = keys_of(sequence, tile);
        if (block < attended.first_block || block > attended.last_block) continue;
        add_tile(head, block, tile, attended,
                 shared_.query_gradients +
                     (slot * shape_.sequence + tile * kBackwardQueries) * shape_.head_dim,
                 memory);
      }
    }
    const int64_t key_offset = AttentionHead(shape_, sequence, first_head).key_offset +
                               block * blocks_.block_keys * shape_.key_stride();
    write_scaled(memory.key_gradients, keys, shape_.head_dim, static_cast<float>(shape_.scale),
                 operands_.k_gradient + key_offset, shape_.key_stride());
    write_scaled(memory.value_gradients, keys, shape_.head_dim, 1.0f,
                 operands_.v_gradient + key_offset, shape_.key_stride());
    std::atomic_ref<int32_t>(shared_.blocks_done[kv_head]).fetch_add(1, std::memory_order_release);
  }

  /// Adds the contributions of the keys of one block and the queries of one tile to dK, dV and dQ.
  /// `query_gradients` holds the sums of dQ of these queries.
  void add_tile(const AttentionHead& head, int64_t block, int64_t tile, const TileKeys& attended,
                float* query_gradients, const BackwardThreadMemory<T>& memory) {
    const BackwardRange range = blocks_.range(block, tile, attended.first, attended.end);
    const int64_t query_offset = head.query_offset + range.first_query * shape_.query_stride();
    const T* q = operands_.q + query_offset;
    const T* output_gradient = operands_.output_gradient + query_offset;
    const int64_t key_offset = head.key_offset + range.first_key * shape_.key_stride();
    const int64_t sums_offset = (range.first_key - block * blocks_.block_keys) * shape_.head_dim;
    const auto [score_product, key_product, query_product] =
        *table_.find(range.keys, range.queries);
    std::byte* workspace = memory.product_workspace;

    score_product->run(operands_.k + key_offset, q, memory.scores, workspace);
    score_product->run(operands_.v + key_offset, output_gradient, memory.probability_gradients,
                       workspace);
    compute_score_gradients(head, range, attended.latest_first > range.first_key, memory);
    key_product->run(memory.probabilities, output_gradient, memory.value_gradients + sums_offset,
                     workspace);
    key_product->run(memory.score_gradients, q, memory.key_gradients + sums_offset, workspace);

    const int64_t head_item = head.sequence_index * shape_.heads + head.head_index;
    int32_t& added = shared_.blocks_added[head_item * blocks_.query_tiles + tile];
    wait_for(added, block);
    if (block == attended.first_block) {
      std::fill_n(query_gradients, range.queries * shape_.head_dim, 0.0f);
    }
    query_product->run(memory.score_gradients, operands_.k + key_offset, query_gradients,
                       workspace);
    if (block == attended.last_block) {
      write_scaled(query_gradients, range.queries, shape_.head_dim,
                   static_cast<float>(shape_.scale), operands_.q_gradient + query_offset,
                   shape_.query_stride());
    }
    publish(added, block + 1);
  }

  /// Computes the probabilities and the gradients of the scaled scores, from the scores and the
  /// gradients of the probabilities. `masks_begin` is true if the keys of some query begin after
  /// the range's first key.
  void compute_score_gradients(const AttentionHead& head, const BackwardRange& range,
                               bool masks_begin, const BackwardThreadMemory<T>& memory) const {
    const int64_t row = head.row_offset + range.first_query;
    const float* log_sum_exp = operands_.log_sum_exp + row;
    const float* deltas = shared_.deltas + row;
    const auto scale = static_cast<float>(shape_.scale);
    const KeyRanges attended = operands_.ranges.from(head.first_token + range.first_query);
    int64_t first_query = 0;  // the first whose keys end after key j
    for (int64_t j = 0; j < range.keys; ++j) {
      const int64_t key = range.first_key + j;
      while (first_query < range.queries && attended.end[first_query] <= key) ++first_query;
      const float* scores = memory.scores + j * kBackwardQueries;
      const float* probability_gradients = memory.probability_gradients + j * kBackwardQueries;
      T* probabilities = memory.probabilities + j * kBackwardQueries;
      T* score_gradients = memory.score_gradients + j * kBackwardQueries;
      std::fill_n(probabilities, first_query, T{});
      std::fill_n(score_gradients, first_query, T{});
#pragma omp simd
      for (int64_t i = first_query; i < range.queries; ++i) {
        const float probability = exp_softmax(scores[i] * scale - log_sum_exp[i]);
        const float score_gradient = probability * (probability_gradients[i] - deltas[i]);
        store_rounded(probability, probabilities[i]);
        store_rounded(score_gradient, score_gradients[i]);
      }
      if (!masks_begin) continue;
      for (int64_t i = first_query; i < range.queries; ++i) {
        if (attended.begin[i] > key) probabilities[i] = score_gradients[i] = T{};
      }
    }
  }

  Runtime& runtime_;
  AttentionShape shape_;
  AttentionGradientOperands<T> operands_;
  BackwardPlan<T> plan_;
  BackwardBlocks blocks_;
  int64_t heads_;  // key-value heads of all sequences
  BackwardTable table_;
  Scratch scratch_;
  BackwardSharedMemory shared_;
  std::byte* thread_scratch_begin_;
};

}  // namespace

template <typename T>
void attention_gradient_fast(Runtime& runtime, const AttentionShape& shape,
                             const AttentionGradientOperands<T>& operands, std::byte* workspace) {
  FlashBackward<T>(runtime, shape, operands, workspace).run();
}

int64_t attention_gradient_fast_workspace(const Target& target, const AttentionShape& shape,
                                          DType dtype) {
  return dtype == DType::bf16 ? BackwardPlan<BFloat16>(target, shape).workspace_bytes
                              : BackwardPlan<float>(target, shape).workspace_bytes;
}

template void attention_gradient_fast(Runtime&, const AttentionShape&,
                                      const AttentionGradientOperands<float>&, std::byte*);
template void attention_gradient_fast(Runtime&, const AttentionShape&,
                                      const AttentionGradientOperands<BFloat16>&, std::byte*);

}  // namespace tessera
