#include "device/kernel.h"
#include "ops/activation/gelu_device.h"
#include "ops/router/router_network_kernels.h"

namespace tessera {
namespace {

constexpr int kNetworkThreads = 256;
constexpr int kColumns = 32;  // columns that a block of sum_rows() handles
constexpr int kRowsAtOnce = kNetworkThreads / kColumns;  // rows that such a block reads at once

// The first four kernels compute one element per thread. router_network_kernels.h has the formulas.

__global__ void depth_average_elements(DepthAverage<float> average) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kNetworkThreads + threadIdx.x;
  if (i >= average.tokens * average.width) return;
  const int64_t column = i % average.width;
  float value = average.x[i] + average.bias[column];
  if (average.previous != nullptr) value += average.scale[column] * average.previous[i];
  average.result[i] = value;
}

__global__ void previous_gradient_elements(DepthAverageGradient<float> average) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kNetworkThreads + threadIdx.x;
  if (i >= average.tokens * average.width) return;
  average.previous_gradient[i] = average.result_gradient[i] * average.scale[i % average.width];
}

__global__ void biased_gelu_elements(BiasedGelu<float> gelu) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kNetworkThreads + threadIdx.x;
  if (i >= gelu.tokens * gelu.width) return;
  gelu.result[i] = gelu_on_device(gelu.x[i] + gelu.bias[i % gelu.width]).value;
}

__global__ void biased_gelu_gradient_elements(BiasedGeluGradient<float> gelu) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kNetworkThreads + threadIdx.x;
  if (i >= gelu.tokens * gelu.width) return;
  gelu.x_gradient[i] =
      gelu.result_gradient[i] * gelu_on_device(gelu.x[i] + gelu.bias[i % gelu.width]).slope;
}

/// Writes sums[c] = Σ_t a[t, c], or Σ_t a[t, c] b[t, c] if b is not null. A block handles kColumns
/// columns. Each of its threads takes every kRowsAtOnce-th row of one column.
__global__ void sum_rows(int64_t tokens, int64_t width, const float* a, const float* b,
                         float* sums) {
  __shared__ float parts[kNetworkThreads];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x % kColumns;
  float total = 0;
  if (column < width) {
    for (int64_t row = threadIdx.x / kColumns; row < tokens; row += kRowsAtOnce) {
      const int64_t index = row * width + column;
      total += b != nullptr ? a[index] * b[index] : a[index];
    }
  }
  parts[threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.x >= kColumns || column >= width) return;
  for (int row = 1; row < kRowsAtOnce; ++row) total += parts[row * kColumns + threadIdx.x];
  sums[column] = total;
}

Grid element_grid(int64_t elements) {
  return {.blocks = (elements + kNetworkThreads - 1) / kNetworkThreads,
          .threads = kNetworkThreads};
}
Grid column_grid(int64_t width) {
  return {.blocks = (width + kColumns - 1) / kColumns, .threads = kNetworkThreads};
}

}  // namespace

template <typename Vendor>
void depth_average_device(const DepthAverage<float>& average, Stream& stream) {
  launch(depth_average_elements, element_grid(average.tokens * average.width), stream, average);
}

template <typename Vendor>
void depth_average_gradient_device(const DepthAverageGradient<float>& average, Stream& stream) {
  const float* const none = nullptr;
  launch(sum_rows, column_grid(average.width), stream, average.tokens, average.width,
         average.result_gradient, none, average.bias_gradient);
  if (average.previous == nullptr) return;
  launch(sum_rows, column_grid(average.width), stream, average.tokens, average.width,
         average.result_gradient, average.previous, average.scale_gradient);
  launch(previous_gradient_elements, element_grid(average.tokens * average.width), stream, average);
}

template <typename Vendor>
void biased_gelu_device(const BiasedGelu<float>& gelu, Stream& stream) {
  launch(biased_gelu_elements, element_grid(gelu.tokens * gelu.width), stream, gelu);
}

template <typename Vendor>
void biased_gelu_gradient_device(const BiasedGeluGradient<float>& gelu, Stream& stream) {
  const float* const none = nullptr;
  launch(biased_gelu_gradient_elements, element_grid(gelu.tokens * gelu.width), stream, gelu);
  launch(sum_rows, column_grid(gelu.width), stream, gelu.tokens, gelu.width,
         static_cast<const float*>(gelu.x_gradient), none, gelu.bias_gradient);
}

template void depth_average_device<ThisVendor>(const DepthAverage<float>&, Stream&);
template void depth_average_gradient_device<ThisVendor>(const DepthAverageGradient<float>&,
                                                        Stream&);
template void biased_gelu_device<ThisVendor>(const BiasedGelu<float>&, Stream&);
template void biased_gelu_gradient_device<ThisVendor>(const BiasedGeluGradient<float>&, Stream&);

}  // namespace tessera
