#include <algorithm>
#include <limits>

#include "base/round_up.h"
#include "device/kernel.h"
#include "ops/loss/loss_rows_kernels.h"

namespace tessera {
namespace {

constexpr int kPackLogits = 8;  // logits of a thread in a round: 16 bytes of bf16

using LogitPack = Pack<float, kPackLogits>;

/// A row of a vocabulary's numbers, of which a block takes a round after the other. In a round a
/// thread has the numbers of one pack, or, where rows do not begin on packs, numbers as far apart
/// as the block has threads.
template <bool packed>
struct VocabularyRow {
  int vocabulary;

  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ int rounds() const {
    const int round = threads() * kPackLogits;
    return (vocabulary + round - 1) / round;
  }
  /// The class of this thread's number i. It may be beyond the vocabulary.
  __device__ int place(int round, int i) const {
    const int thread = static_cast<int>(threadIdx.x);
    return packed ? (round * threads() + thread) * kPackLogits + i
                  : (round * kPackLogits + i) * threads() + thread;
  }
  /// Beyond the vocabulary lie the lowest numbers.
  __device__ LogitPack load(const float* row, int round) const {
    LogitPack values;
    for (float& value : values.values) value = std::numeric_limits<float>::lowest();
    if constexpr (packed) {
      if (place(round, 0) < vocabulary) {
        values = load_pack<kPackLogits>(row + place(round, 0), 0);
      }
    } else {
      for (int i = 0; i < kPackLogits; ++i) {
        if (place(round, i) < vocabulary) values.values[i] = row[place(round, i)];
      }
    }
    return values;
  }
  template <typename T>
  __device__ void store(T* row, int round, const Pack<T, kPackLogits>& values) const {
    if constexpr (packed) {
      if (place(round, 0) < vocabulary) store_pack(row + place(round, 0), 0, values);
    } else {
      for (int i = 0; i < kPackLogits; ++i) {
        if (place(round, i) < vocabulary) row[place(round, i)] = values.values[i];
      }
    }
  }
};

/// The largest logit that a thread has seen, and Σ exp(logit - largest). It begins with the lowest
/// number, not with an infinity, whose difference to itself is no number.
struct PartialLogSum {
  float largest = std::numeric_limits<float>::lowest();
  float sum = 0;

  __device__ void add(const LogitPack& logits) {
    float most = largest;
    for (const float logit : logits.values) most = most < logit ? logit : most;
    sum *= expf(largest - most);
    largest = most;
    for (const float logit : logits.values) sum += expf(logit - largest);
  }
};

/// One block a row: its logits are read once for the log-sum-exp and once for the gradient.
template <typename T, bool packed>
__global__ void __launch_bounds__(kMostThreads) loss_rows(LossRows<T> loss) {
  const int64_t index = blockIdx.x;
  const bool first_thread = threadIdx.x == 0;
  const VocabularyRow<packed> row{static_cast<int>(loss.vocabulary)};
  const float* const logits = loss.logits + index * loss.vocabulary;
  const int target = loss.targets[index];
  const float target_logit = first_thread && target >= 0 ? logits[target] : 0.0f;

  PartialLogSum mine;
  for (int round = 0; round < row.rounds(); ++round) mine.add(row.load(logits, round));
  const float largest = block_max(mine.largest);
  const float sum = block_sum(mine.sum * expf(mine.largest - largest));
  const float log_sum_exp = largest + logf(sum);
  if (first_thread) {
    loss.log_sum_exp[index] = log_sum_exp;
    loss.token_loss[index] = target >= 0 ? log_sum_exp - target_logit : 0.0f;
  }
  if (loss.seed == nullptr) return;

  const float scale = target >= 0 ? *loss.seed : 0.0f;
  const float factor = scale * (1.0f + 2.0f * loss.z * log_sum_exp);
  T* const gradient = loss.gradient + index * loss.gradient_stride;
  for (int round = 0; round < row.rounds(); ++round) {
    const LogitPack values = row.load(logits, round);
    // Narrow gradients are written over logits that come earlier in the row: of this round, or of
    // one before.
    if constexpr (sizeof(T) < sizeof(float)) __syncthreads();
    Pack<T, kPackLogits> results;
    for (int i = 0; i < kPackLogits; ++i) {
      const float hit = row.place(round, i) == target ? scale : 0.0f;
      results.values[i] = round_to<T>(factor * expf(values.values[i] - log_sum_exp) - hit);
    }
    row.store(gradient, round, results);
  }
}

/// One block.
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

template <bool packed, typename T>
void launch_loss_rows(const LossRows<T>& loss, Stream& stream) {
  const int64_t packs = (loss.vocabulary + kPackLogits - 1) / kPackLogits;
  const auto threads = std::min<int64_t>(kMostThreads, round_up(packs, kLanes));
  launch(loss_rows<T, packed>, {.blocks = loss.rows, .threads = static_cast<int>(threads)}, stream,
         loss);
}

}  // namespace

template <typename Vendor, typename T>
void loss_rows_device(const LossRows<T>& loss, Stream& stream) {
  const bool packed = loss.vocabulary % kPackLogits == 0;
  packed ? launch_loss_rows<true>(loss, stream) : launch_loss_rows<false>(loss, stream);
}

template <typename Vendor>
void loss_sum_device(const LossSum& sum, Stream& stream) {
  launch(sum_losses, {.blocks = 1, .threads = kMostThreads}, stream, sum);
}

template void loss_rows_device<ThisVendor>(const LossRows<float>&, Stream&);
template void loss_rows_device<ThisVendor>(const LossRows<BFloat16>&, Stream&);
template void loss_sum_device<ThisVendor>(const LossSum&, Stream&);

}  // namespace tessera
