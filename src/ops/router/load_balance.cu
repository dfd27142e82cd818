#include "device/kernel.h"
#include "ops/router/router_kernels.h"

namespace tessera {
namespace {

constexpr int kBalanceThreads = 256;

/// Σ_l counts_le.
__device__ int64_t choices_of(const BalanceLayers& layers, int64_t expert) {
  int64_t sum = 0;
  for (int layer = 0; layer < layers.count; ++layer) sum += layers.counts[layer][expert];
  return sum;
}

/// One block.
__global__ void balance_loss(BalanceLayers layers, float factor, const double* sums, float* loss) {
  float total = 0;
  for (int64_t e = threadIdx.x; e < layers.experts; e += blockDim.x) {
    total += static_cast<float>(static_cast<double>(choices_of(layers, e)) * sums[e]);
  }
  total = block_sum(total);
  if (threadIdx.x == 0) *loss = factor * total;
}

/// One block.
__global__ void balance_gradient(BalanceLayers layers, float factor, const float* of_loss,
                                 double* of_sums) {
  for (int64_t e = threadIdx.x; e < layers.experts; e += blockDim.x) {
    of_sums[e] = factor * of_loss[0] * static_cast<float>(choices_of(layers, e));
  }
}

}  // namespace

template <typename Vendor>
void load_balance_loss_device(const BalanceLayers& layers, double factor, const double* sums,
                              float* loss, Stream& stream) {
  launch(balance_loss, {.threads = kBalanceThreads}, stream, layers, static_cast<float>(factor),
         sums, loss);
}

template <typename Vendor>
void load_balance_gradient_device(const BalanceLayers& layers, double factor, const float* of_loss,
                                  double* of_sums, Stream& stream) {
  launch(balance_gradient, {.threads = kBalanceThreads}, stream, layers, static_cast<float>(factor),
         of_loss, of_sums);
}

template void load_balance_loss_device<ThisVendor>(const BalanceLayers&, double, const double*,
                                                   float*, Stream&);
template void load_balance_gradient_device<ThisVendor>(const BalanceLayers&, double, const float*,
                                                       double*, Stream&);

}  // namespace tessera
