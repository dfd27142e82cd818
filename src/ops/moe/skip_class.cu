#include "device/kernel.h"
#include "ops/moe/skip_class_kernels.h"

namespace tessera {
namespace {

constexpr int kSkipThreads = 128;

/// Computes result_t = output_t + weight(t) · x_t for one token per block.
template <typename T>
__global__ void add_skipped_rows(AddSkipped<T> skipped) {
  const int64_t token = blockIdx.x;
  const float weight = skipped.choices.weight(token);
  for (int64_t i = threadIdx.x; i < skipped.hidden; i += kSkipThreads) {
    const int64_t index = token * skipped.hidden + i;
    skipped.result[index] = static_cast<T>(static_cast<float>(skipped.output[index]) +
                                           weight * static_cast<float>(skipped.x[index]));
  }
}

/// Computes the gradients of one token per block. The formulas are in skip_class_kernels.h.
template <typename T>
__global__ void add_skipped_gradient_rows(AddSkippedGradient<T> skipped) {
  const int64_t token = blockIdx.x;
  const float weight = skipped.choices.weight(token);
  float product = 0;
  for (int64_t i = threadIdx.x; i < skipped.hidden; i += kSkipThreads) {
    const int64_t index = token * skipped.hidden + i;
    const auto result_gradient = static_cast<float>(skipped.result_gradient[index]);
    product += result_gradient * static_cast<float>(skipped.x[index]);
    skipped.x_gradient[index] = static_cast<T>(weight * result_gradient);
  }
  product = block_sum(product);
  if (threadIdx.x != 0) return;
  for (int64_t j = 0; j < skipped.choices.k; ++j) {
    skipped.weights_gradient[token * skipped.choices.k + j] =
        skipped.choices.skips(token, j) ? product : 0.0f;
  }
}

}  // namespace

template <typename Vendor, typename T>
void add_skipped_device(const AddSkipped<T>& skipped, Stream& stream) {
  launch(add_skipped_rows<T>, {.blocks = skipped.choices.tokens, .threads = kSkipThreads}, stream,
         skipped);
}

template <typename Vendor, typename T>
void add_skipped_gradient_device(const AddSkippedGradient<T>& skipped, Stream& stream) {
  launch(add_skipped_gradient_rows<T>,
         {.blocks = skipped.choices.tokens, .threads = kSkipThreads}, stream, skipped);
}

template void add_skipped_device<ThisVendor>(const AddSkipped<float>&, Stream&);
template void add_skipped_device<ThisVendor>(const AddSkipped<BFloat16>&, Stream&);
template void add_skipped_gradient_device<ThisVendor>(const AddSkippedGradient<float>&, Stream&);
template void add_skipped_gradient_device<ThisVendor>(const AddSkippedGradient<BFloat16>&,
                                                      Stream&);

}  // namespace tessera
