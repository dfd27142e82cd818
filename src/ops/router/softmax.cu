#include "ops/router/router_kernels.h"
#include "ops/router/router_rows.h"

namespace tessera {
namespace {

/// Computes the softmax of one row per group of lanes; router_kernels.h has the formulas.
template <int size>
__global__ void router_softmax_rows(RouterRows rows, const float* logits, float* probabilities) {
  const RouterRow<size> row(rows, blockIdx.x * rows_at_once(rows));
  const int64_t start = row.token * rows.experts;
  const ExponentialSum total = exponential_sum(row, logits + start);
  row.for_each_pack([&](int p) {
    Pack<float, size> pack = load_pack<size>(logits + start, p);
    for (int i = 0; i < size; ++i) {
      pack.values[i] = expf(pack.values[i] - total.maximum) / total.sum;
    }
    store_pack(probabilities + start, p, pack);
  });
}

template <int size>
__global__ void router_softmax_gradient_rows(RouterRows rows, const float* probabilities,
                                             const float* probabilities_gradient,
                                             float* logits_gradient) {
  const RouterRow<size> row(rows, blockIdx.x * rows_at_once(rows));
  const int64_t start = row.token * rows.experts;
  float products = 0;
  row.for_each_pack([&](int p) {
    const Pack<float, size> pack = load_pack<size>(probabilities + start, p);
    const Pack<float, size> gradient = load_pack<size>(probabilities_gradient + start, p);
    for (int i = 0; i < size; ++i) products += pack.values[i] * gradient.values[i];
  });
  const float dot = row.sum(products);
  row.for_each_pack([&](int p) {
    const Pack<float, size> pack = load_pack<size>(probabilities + start, p);
    Pack<float, size> gradient = load_pack<size>(probabilities_gradient + start, p);
    for (int i = 0; i < size; ++i) {
      gradient.values[i] = pack.values[i] * (gradient.values[i] - dot);
    }
    store_pack(logits_gradient + start, p, gradient);
  });
}

}  // namespace

template <typename Vendor>
void router_softmax_device(int64_t tokens, int64_t experts, const float* logits,
                           float* probabilities, Stream& stream) {
  for_router_rows(tokens, experts, [&](auto size, const RouterRows& rows, const Grid& grid) {
    launch(router_softmax_rows<size>, grid, stream, rows, logits, probabilities);
  });
}

template <typename Vendor>
void router_softmax_gradient_device(int64_t tokens, int64_t experts, const float* probabilities,
                                    const float* probabilities_gradient, float* logits_gradient,
                                    Stream& stream) {
  for_router_rows(tokens, experts, [&](auto size, const RouterRows& rows, const Grid& grid) {
    launch(router_softmax_gradient_rows<size>, grid, stream, rows, probabilities,
           probabilities_gradient, logits_gradient);
  });
}

template void router_softmax_device<ThisVendor>(int64_t, int64_t, const float*, float*, Stream&);
template void router_softmax_gradient_device<ThisVendor>(int64_t, int64_t, const float*,
                                                         const float*, float*, Stream&);

}  // namespace tessera
