#include "device/kernel.h"
#include "ops/norm/scaled_residual_kernels.h"

namespace tessera {
namespace {

constexpr int kScaledThreads = 256;

/// One block scales and normalises one row.
template <typename T>
__global__ void scaled_residual_rows(ScaledForward<T> scaled) {
  const int64_t row = blockIdx.x;
  const int64_t start = row * scaled.width;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < scaled.width; i += kScaledThreads) {
    if (scaled.x != nullptr) {
      float sum =
          (static_cast<float>(scaled.x[start + i]) + scaled.of_x.bias[i]) * scaled.of_x.scale[i];
      if (scaled.stream != nullptr) {
        sum += (scaled.stream[start + i] + scaled.of_stream.bias[i]) * scaled.of_stream.scale[i];
      }
      scaled.sum[start + i] = sum;
    }
    const float sum = scaled.sum[start + i];
    squares += sum * sum;
  }
  const float mean = block_sum(squares) / static_cast<float>(scaled.width);
  const float inverse = 1.0f / sqrtf(mean + static_cast<float>(scaled.epsilon));
  if (threadIdx.x == 0) scaled.inverse[row] = inverse;
  // Each thread reads the sums that it wrote itself.
  for (int64_t i = threadIdx.x; i < scaled.width; i += kScaledThreads) {
    scaled.output[start + i] = static_cast<T>(scaled.sum[start + i] * inverse * scaled.weight[i]);
  }
}

/// One block goes through the rows of one part. A thread adds up the columns that it writes.
template <typename T>
__global__ void scaled_residual_gradient_part(ScaledBackward<T> scaled) {
  const int64_t width = scaled.width;
  float* const sums = scaled.parts + blockIdx.x * kScaledSums * width;
  for (int64_t i = threadIdx.x; i < kScaledSums * width; i += kScaledThreads) sums[i] = 0;
  __syncthreads();
  for (int64_t row = blockIdx.x; row < scaled.rows; row += scaled.part_count) {
    const int64_t start = row * width;
    const float inverse = scaled.inverse[row];
    float product_sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kScaledThreads) {
      const float product =
          static_cast<float>(scaled.of_output[start + i]) * scaled.sum[start + i] * inverse;
      sums[3 * width + i] += product;
      product_sum += product * scaled.weight[i];
    }
    const float product_mean = block_sum(product_sum) / static_cast<float>(width);
    for (int64_t i = threadIdx.x; i < width; i += kScaledThreads) {
      const int64_t at = start + i;
      const float gradient = static_cast<float>(scaled.of_output[at]) * scaled.weight[i];
      float of = inverse * (gradient - scaled.sum[at] * inverse * product_mean);
      if (scaled.of_sum != nullptr) of += scaled.of_sum[at];
      sums[i] += of;
      sums[width + i] += of * static_cast<float>(scaled.x[at]);
      scaled.x_gradient[at] = static_cast<T>(of * scaled.of_x.scale[i]);
      if (scaled.stream != nullptr) {
        sums[2 * width + i] += of * scaled.stream[at];
        scaled.stream_gradient[at] = of * scaled.of_stream.scale[i];
      }
    }
  }
}

/// One thread adds up the parts of one column.
template <typename T>
__global__ void scaled_residual_vectors(ScaledBackward<T> scaled) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kScaledThreads + threadIdx.x;
  if (i >= scaled.width) return;
  float column[kScaledSums] = {};
  for (int64_t part = 0; part < scaled.part_count; ++part) {
    const float* const sums = scaled.parts + part * kScaledSums * scaled.width + i;
    for (int s = 0; s < kScaledSums; ++s) column[s] += sums[s * scaled.width];
  }
  put_vector_gradients(scaled, i, column);
}

}  // namespace

template <typename Vendor, typename T>
void scaled_residual_device(const ScaledForward<T>& scaled, Stream& stream) {
  launch(scaled_residual_rows<T>, {.blocks = scaled.rows, .threads = kScaledThreads}, stream,
         scaled);
}

template <typename Vendor, typename T>
void scaled_residual_gradient_device(const ScaledBackward<T>& scaled, Stream& stream) {
  launch(scaled_residual_gradient_part<T>,
         {.blocks = scaled.part_count, .threads = kScaledThreads}, stream, scaled);
  launch(scaled_residual_vectors<T>,
         {.blocks = (scaled.width + kScaledThreads - 1) / kScaledThreads,
          .threads = kScaledThreads},
         stream, scaled);
}

template void scaled_residual_device<ThisVendor>(const ScaledForward<float>&, Stream&);
template void scaled_residual_device<ThisVendor>(const ScaledForward<BFloat16>&, Stream&);
template void scaled_residual_gradient_device<ThisVendor>(const ScaledBackward<float>&, Stream&);
template void scaled_residual_gradient_device<ThisVendor>(const ScaledBackward<BFloat16>&,
                                                          Stream&);

}  // namespace tessera
