#include "device/kernel.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

constexpr int kCopyThreads = 256;

__global__ void copy_if_finite(const double* scale, int64_t count, const float* source,
                               float* target) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kCopyThreads + threadIdx.x;
  if (i < count && !std::isnan(*scale)) target[i] = source[i];
}

}  // namespace

template <typename Vendor>
void copy_if_finite_device(const double* scale, int64_t count, const float* source, float* target,
                           Stream& stream) {
  launch(copy_if_finite,
         {.blocks = (count + kCopyThreads - 1) / kCopyThreads, .threads = kCopyThreads}, stream,
         scale, count, source, target);
}

template void copy_if_finite_device<ThisVendor>(const double*, int64_t, const float*, float*,
                                                Stream&);

}  // namespace tessera
