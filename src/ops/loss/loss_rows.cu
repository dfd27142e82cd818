#include <algorithm>
#include <limits>

#include "base/round_up.h"
#include "device/packs.h"
#include "ops/loss/loss_rows_kernels.h"

namespace tessera {
namespace {

constexpr int kPackLogits = 8;  // logits of a thread in a round: 16 bytes of bf16

using LogitPack = Pack<float, kPackLogits>;

/// A row of numbers, one for each class, that a block reads in rounds. In a round a thread has
/// kPackLogits numbers. They are neighbours, one pack, if `packed`. Otherwise, because rows do not
/// begin on packs, they are as far apart as the block has threads.
template <bool packed>
struct VocabularyRow {
  int vocabulary;

  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ int rounds() const {
    const int round = threads() * kPackLogits;
    return (vocabulary + round - 1) / round;
  }
  /// Returns the class of number i of this thread in a round. It may be past the vocabulary.
  __device__ int class_index(int round, int i) const {
    const int thread = static_cast<int>(threadIdx.x);
    return packed ? (round * threads() + thread) * kPackLogits + i
                  : (round * kPackLogits + i) * threads() + thread;
  }
  /// Returns this thread's numbers of a round. Past the vocabulary they are the lowest float.
  __device__ LogitPack load(const float* row, int round) const {
    LogitPack values;
    for (float& value : values.values) value = std::numeric_limits<float>::lowest();
    if constexpr (packed) {
      if (class_index(round, 0) < vocabulary) {
        values = load_pack<kPackLogits>(row + class_index(round, 0), 0);
      }
    } else {
      for (int i = 0; i < kPackLogits; ++i) {
        if (class_index(round, i) < vocabulary) values.values[i] = row[class_index(round, i)];
      }
    }
    return values;
  }
  template <typename T>
  __device__ void store(T* row, int round, const Pack<T, kPackLogits>& values) const {
    if constexpr (packed) {
      if (class_index(round, 0) < vocabulary) store_pack(row + class_index(round, 0), 0, values);
    } else {
      for (int i = 0; i < kPackLogits; ++i) {
        if (class_index(round, i) < vocabulary) row[class_index(round, i)] = values.values[i];
      }
    }
  }
};

/// The largest logit that a thread has read, and Σ exp(logit - largest). The largest starts as the
/// lowest finite float: an infinity minus itself would be NaN.
struct PartialLogSum {
  float largest = std::numeric_limits<float>::lowest();
  float sum = 0;

  __device__ void add(const LogitPack& logits) {
    float new_largest = largest;
    for (const float logit : logits.values) new_largest = new_largest < logit ? logit : new_largest;
    sum *= expf(largest - new_largest);
    largest = new_largest;
    for (const float logit : logits.values) sum += expf(logit - largest);
  }
};

/// Writes a row's results, and overwrites its logits with their gradient. `target` is the index of
/// the target in the row, or negative.
template <typename T, bool packed>
__device__ void write_results(const LossRows<T>& loss, int64_t index, bool has_target, int target,
                              float target_logit, float log_sum_exp) {
  if (threadIdx.x == 0) {
    loss.log_sum_exp[index] = log_sum_exp;
    loss.token_loss[index] = has_target ? log_sum_exp - target_logit : 0.0f;
  }
  if (loss.seed == nullptr) return;
  const float scale = has_target ? *loss.seed : 0.0f;
  const VocabularyRow<packed> row{static_cast<int>(loss.vocabulary)};
  const float* const logits = loss.logits + index * loss.vocabulary;
  const float factor = scale * (1.0f + 2.0f * loss.z * log_sum_exp);
  T* const gradient = loss.gradient + index * loss.gradient_stride;
  for (int round = 0; round < row.rounds(); ++round) {
    const LogitPack values = row.load(logits, round);
    // Gradients that are narrower than f32 overwrite logits from earlier in the row. Other threads
    // may still have to read these in this round.
    if constexpr (sizeof(T) < sizeof(float)) __syncthreads();
    Pack<T, kPackLogits> results;
    for (int i = 0; i < kPackLogits; ++i) {
      const float hit = row.class_index(round, i) == target ? scale : 0.0f;
      results.values[i] = round_to<T>(factor * expf(values.values[i] - log_sum_exp) - hit);
    }
    row.store(gradient, round, results);
  }
}

/// Computes the results of one row per block (see PlainRows for the formulas). The logits are read
/// once for the log-sum-exp and once for the gradient.
template <typename T, bool packed>
__global__ void __launch_bounds__(kMostThreads) loss_rows(LossRows<T> loss) {
  const int64_t index = blockIdx.x;
  const VocabularyRow<packed> row{static_cast<int>(loss.vocabulary)};
  const float* const logits = loss.logits + index * loss.vocabulary;
  const int target = loss.targets[index];
  const float target_logit = threadIdx.x == 0 && target >= 0 ? logits[target] : 0.0f;

  PartialLogSum partial;  // of this thread
  for (int round = 0; round < row.rounds(); ++round) partial.add(row.load(logits, round));
  const float largest = block_max(partial.largest);
  const float sum = block_sum(partial.sum * expf(partial.largest - largest));
  write_results<T, packed>(loss, index, target >= 0, target, target_logit, largest + logf(sum));
}

/// Returns a row's target as an index among this rank's classes, or -1 if it is not one of them.
template <typename T>
__device__ int rank_target(const SplitLossRows<T>& split, int64_t index) {
  const int64_t target = split.loss.targets[index];
  const int64_t rank_class = target - split.first;
  const bool is_held = target >= 0 && rank_class >= 0 && rank_class < split.loss.vocabulary;
  return is_held ? static_cast<int>(rank_class) : -1;
}

// If ranks share the vocabulary, three kernels take the place of loss_rows(), with one block per
// row. Between them the ranks all-reduce.

/// Writes each row's largest logit.
template <typename T, bool packed>
__global__ void __launch_bounds__(kMostThreads) split_largest(SplitLossRows<T> split) {
  const int64_t index = blockIdx.x;
  const VocabularyRow<packed> row{static_cast<int>(split.loss.vocabulary)};
  const float* const logits = split.loss.logits + index * split.loss.vocabulary;
  float largest = std::numeric_limits<float>::lowest();
  for (int round = 0; round < row.rounds(); ++round) {
    const LogitPack values = row.load(logits, round);
    for (const float value : values.values) largest = largest < value ? value : largest;
  }
  largest = block_max(largest);
  if (threadIdx.x == 0) split.largest[index] = largest;
}

/// Writes each row's sum of exponentials, and its target's logit.
template <typename T, bool packed>
__global__ void __launch_bounds__(kMostThreads) split_sums(SplitLossRows<T> split) {
  const int64_t index = blockIdx.x;
  const VocabularyRow<packed> row{static_cast<int>(split.loss.vocabulary)};
  const float* const logits = split.loss.logits + index * split.loss.vocabulary;
  const float largest = split.largest[index];
  float sum = 0;
  for (int round = 0; round < row.rounds(); ++round) {
    const LogitPack values = row.load(logits, round);
    for (int i = 0; i < kPackLogits; ++i) {
      if (row.class_index(round, i) < row.vocabulary) sum += expf(values.values[i] - largest);
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const int target = rank_target(split, index);
  split.sums[index] = sum;
  split.sums[split.loss.rows + index] = target >= 0 ? logits[target] : 0.0f;
}

/// Writes each row's results and gradient.
template <typename T, bool packed>
__global__ void __launch_bounds__(kMostThreads) split_results(SplitLossRows<T> split) {
  const int64_t index = blockIdx.x;
  write_results<T, packed>(split.loss, index, split.loss.targets[index] >= 0,
                           rank_target(split, index), split.sums[split.loss.rows + index],
                           split.largest[index] + logf(split.sums[index]));
}

/// Sums the losses of all tokens, in one block.
__global__ void __launch_bounds__(kMostThreads) sum_losses(LossSum losses) {
  double total = 0;
  for (int64_t token = threadIdx.x; token < losses.tokens; token += blockDim.x) {
    if (losses.targets[token] < 0) continue;
    const double log_sum_exp = losses.log_sum_exp[token];
    total += static_cast<double>(losses.token_loss[token]) + losses.z * log_sum_exp * log_sum_exp;
  }
  total = block_sum(total);
  if (threadIdx.x == 0) *losses.loss = static_cast<float>(total);
}

/// Returns a grid of one block per row, with one thread per pack, up to the most threads of a
/// block.
template <typename T>
Grid grid_of_rows(const LossRows<T>& loss) {
  const int64_t packs = (loss.vocabulary + kPackLogits - 1) / kPackLogits;
  const auto threads =
      std::min<int64_t>(kMostThreads, round_up(std::max<int64_t>(packs, 1), kLanes));
  return {.blocks = loss.rows, .threads = static_cast<int>(threads)};
}

}  // namespace

template <typename Vendor, typename T>
void loss_rows_device(const LossRows<T>& loss, Stream& stream) {
  const bool packed = loss.vocabulary % kPackLogits == 0;  // then each row begins on a pack
  launch(packed ? loss_rows<T, true> : loss_rows<T, false>, grid_of_rows(loss), stream, loss);
}

template <typename Vendor, typename T>
void split_rows_device(SplitLossStep step, const SplitLossRows<T>& split, Stream& stream) {
  const bool packed = split.loss.vocabulary % kPackLogits == 0;
  const Grid grid = grid_of_rows(split.loss);
  switch (step) {
    case SplitLossStep::largest:
      return launch(packed ? split_largest<T, true> : split_largest<T, false>, grid, stream, split);
    case SplitLossStep::sums:
      return launch(packed ? split_sums<T, true> : split_sums<T, false>, grid, stream, split);
    case SplitLossStep::results:
      return launch(packed ? split_results<T, true> : split_results<T, false>, grid, stream, split);
  }
}

template <typename Vendor>
void loss_sum_device(const LossSum& sum, Stream& stream) {
  launch(sum_losses, {.blocks = 1, .threads = kMostThreads}, stream, sum);
}

template void loss_rows_device<ThisVendor>(const LossRows<float>&, Stream&);
template void loss_rows_device<ThisVendor>(const LossRows<BFloat16>&, Stream&);
template void split_rows_device<ThisVendor>(SplitLossStep, const SplitLossRows<float>&, Stream&);
template void split_rows_device<ThisVendor>(SplitLossStep, const SplitLossRows<BFloat16>&, Stream&);
template void loss_sum_device<ThisVendor>(const LossSum&, Stream&);

}  // namespace tessera
