#include "device/kernel.h"
#include "ops/router/router_kernels.h"

namespace tessera {
namespace {

constexpr int kBalanceThreads = 256;

/// Returns Σ_l counts_le. The sum is exact unless the counts are means.
__device__ double layer_counts(const BalanceLayers& layers, int64_t expert) {
  double sum = 0;
  for (int layer = 0; layer < layers.count; ++layer) {
    const void* const counts = layers.counts[layer];
    sum += layers.counts_are_means ? static_cast<const double*>(counts)[expert]
                        : static_cast<const int32_t*>(counts)[expert];
  }
  return sum;
}

/// Writes means_e = sum_e Σ_e counts_e / Σ_e sum_e, in one block. The elements of both arrays are
/// whole numbers, so their sums are exact in any order.
__global__ void mean_of_counts(int64_t experts, const double* sum, const int32_t* counts,
                               double* means) {
  double step_choices = 0, batch_choices = 0;
  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
    step_choices += sum[e];
    batch_choices += counts[e];
  }
  step_choices = block_sum(step_choices);
  batch_choices = block_sum(batch_choices);
  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
    means[e] = step_choices == 0 ? 0 : sum[e] * batch_choices / step_choices;
  }
}

/// Writes sums_e = Σ_l counts_le, in one block.
template <typename Count>
__global__ void add_layer_counts(BalanceLayers layers, Count* sums) {
  for (int64_t e = threadIdx.x; e < layers.experts; e += blockDim.x) {
    sums[e] = static_cast<Count>(layer_counts(layers, e));
  }
}

/// Writes loss = factor · Σ_e (Σ_l counts_le) sums_e, in one block.
__global__ void balance_loss(BalanceLayers layers, float factor, const double* sums, float* loss) {
  float total = 0;
  for (int64_t e = threadIdx.x; e < layers.experts; e += blockDim.x) {
    total += static_cast<float>(layer_counts(layers, e) * sums[e]);
  }
  total = block_sum(total);
  if (threadIdx.x == 0) *loss = factor * total;
}

/// Writes sums_gradient_e = factor · loss_gradient · Σ_l counts_le, in one block.
__global__ void balance_gradient(BalanceLayers layers, float factor, const float* loss_gradient,
                                 double* sums_gradient) {
  for (int64_t e = threadIdx.x; e < layers.experts; e += blockDim.x) {
    sums_gradient[e] = factor * loss_gradient[0] * static_cast<float>(layer_counts(layers, e));
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
void load_balance_gradient_device(const BalanceLayers& layers, double factor,
                                  const float* loss_gradient, double* sums_gradient,
                                  Stream& stream) {
  launch(balance_gradient, {.threads = kBalanceThreads}, stream, layers, static_cast<float>(factor),
         loss_gradient, sums_gradient);
}

template <typename Vendor>
void step_counts_device(int64_t experts, const double* sum, const int32_t* counts, double* means,
                        Stream& stream) {
  launch(mean_of_counts, {.threads = kBalanceThreads}, stream, experts, sum, counts, means);
}

template <typename Vendor>
void sum_of_counts_device(const BalanceLayers& layers, void* sums, Stream& stream) {
  const Grid grid{.threads = kBalanceThreads};
  if (layers.counts_are_means) {
    launch(add_layer_counts<double>, grid, stream, layers, static_cast<double*>(sums));
  } else {
    launch(add_layer_counts<int32_t>, grid, stream, layers, static_cast<int32_t*>(sums));
  }
}

template void sum_of_counts_device<ThisVendor>(const BalanceLayers&, void*, Stream&);
template void load_balance_loss_device<ThisVendor>(const BalanceLayers&, double, const double*,
                                                   float*, Stream&);
template void load_balance_gradient_device<ThisVendor>(const BalanceLayers&, double, const float*,
                                                       double*, Stream&);
template void step_counts_device<ThisVendor>(int64_t, const double*, const int32_t*, double*,
                                             Stream&);

}  // namespace tessera
