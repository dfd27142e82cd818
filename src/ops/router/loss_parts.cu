#include "device/kernel.h"
#include "ops/router/router_kernels.h"

namespace tessera {
namespace {

/// Writes loss = factor · the sum of the parts, in one block.
__global__ void add_loss_parts(const float* parts, int64_t count, float factor, float* loss) {
  float total = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *loss = factor * total;
}

}  // namespace

template <typename Vendor>
void router_loss_sum_device(const float* parts, int64_t count, double factor, float* loss,
                            Stream& stream) {
  constexpr int kThreads = 256;
  launch(add_loss_parts, {.threads = kThreads}, stream, parts, count, static_cast<float>(factor),
         loss);
}

template void router_loss_sum_device<ThisVendor>(const float*, int64_t, double, float*, Stream&);

}  // namespace tessera
