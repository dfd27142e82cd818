#include <algorithm>
#include <limits>

#include "base/round_up.h"
#include "device/kernel.h"
#include "ops/loss/loss_rows_kernels.h"

namespace tessera {
namespace {

constexpr int kPackLogits = 8;  // logits of a thread: 16 bytes of bf16

/// The largest logit that a thread has seen, and Σ exp(logit - largest). It begins with the lowest
/// number, not with an infinity, whose difference to itself is no number.
struct PartialLogSum {
  float largest = std::numeric_limits<float>::lowest();
  float sum = 0;

  template <int size>
  __device__ void add(const Pack<float, size>& logits) {
    float most = largest;
    for (int i = 0; i < size; ++i) most = most < logits.values[i] ? logits.values[i] : most;
    sum *= expf(largest - most);
    largest = most;
    for (int i = 0; i < size; ++i) sum += expf(logits.values[i] - largest);
  }
};

/// One block a row: its logits are read once for the log-sum-exp and once for the gradient.
template <typename T, int size>
__global__ void __launch_bounds__(kMostThreads) loss_rows(LossRows<T> loss) {
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int packs = static_cast<int>(loss.vocabulary / size);
  const float* const logits = loss.logits + row * loss.vocabulary;
  const int target = loss.targets[row];
  const float target_logit = thread == 0 && target >= 0 ? logits[target] : 0.0f;

  PartialLogSum mine;
  for (int p = thread; p < packs; p += threads) mine.add(load_pack<size>(logits, p));
  const float largest = block_max(mine.largest);
  const float sum = block_sum(mine.sum * expf(mine.largest - largest));
  const float log_sum_exp = largest + logf(sum);
  if (thread == 0) {
    loss.log_sum_exp[row] = log_sum_exp;
    loss.token_loss[row] = target >= 0 ? log_sum_exp - target_logit : 0.0f;
  }
  if (loss.seed == nullptr) return;

  const float scale = target >= 0 ? *loss.seed : 0.0f;
  const float factor = scale * (1.0f + 2.0f * loss.z * log_sum_exp);
  T* const gradient = loss.gradient + row * loss.gradient_stride;
  for (int first = 0; first < packs; first += threads) {
    const int p = first + thread;
    Pack<float, size> values{};
    if (p < packs) values = load_pack<size>(logits, p);
    // Narrow gradients are written over logits that come earlier in the row: of this round, or of
    // one before.
    if constexpr (sizeof(T) < sizeof(float)) __syncthreads();
    Pack<T, size> results;
    for (int i = 0; i < size; ++i) {
      const float hit = p * size + i == target ? scale : 0.0f;
      results.values[i] = round_to<T>(factor * expf(values.values[i] - log_sum_exp) - hit);
    }
    if (p < packs) store_pack(gradient, p, results);
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

template <int size, typename T>
void launch_loss_rows(const LossRows<T>& loss, Stream& stream) {
  const int64_t packs = loss.vocabulary / size;
  const auto threads = std::min<int64_t>(kMostThreads, round_up(packs, kLanes));
  launch(loss_rows<T, size>, {.blocks = loss.rows, .threads = static_cast<int>(threads)}, stream,
         loss);
}

}  // namespace

template <typename Vendor, typename T>
void loss_rows_device(const LossRows<T>& loss, Stream& stream) {
  loss.vocabulary % kPackLogits == 0 ? launch_loss_rows<kPackLogits>(loss, stream) : launch_loss_rows<1>(loss, stream);
}

template <typename Vendor>
void loss_sum_device(const LossSum& sum, Stream& stream) {
  launch(sum_losses, {.blocks = 1, .threads = kMostThreads}, stream, sum);
}

template void loss_rows_device<ThisVendor>(const LossRows<float>&, Stream&);
template void loss_rows_device<ThisVendor>(const LossRows<BFloat16>&, Stream&);
template void loss_sum_device<ThisVendor>(const LossSum&, Stream&);

}  // namespace tessera
