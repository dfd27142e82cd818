#include "ops/router/router_kernels.h"
#include "ops/router/router_rows.h"

namespace tessera {
namespace {

/// Returns a number that orders experts: the expert with the larger number is chosen first. The
/// upper 32 bits order by probability (a NaN counts as -inf), the lower 32 bits put the lower index
/// first among equals. The number is never 0.
__device__ inline uint64_t choice_rank(float probability, int expert) {
  if (probability != probability) probability = -INFINITY;
  if (probability == 0) probability = 0;  // -0 equals 0
  // Floats compare like integers once negative ones have all bits flipped, others the sign bit.
  const auto bits = std::bit_cast<uint32_t>(probability);
  const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | ~static_cast<uint32_t>(expert);
}

/// Returns the row's most probable expert after the expert whose choice_rank() is `last`, and sets
/// `last` to the rank of the returned expert. Biases are added unless they are null.
template <int size>
__device__ int next_expert(const RouterRow<size>& row, const float* probabilities,
                           const float* biases, uint64_t* last) {
  uint64_t best = 0;
  row.for_each_pack([&](int p) {
    Pack<float, size> pack = load_pack<size>(probabilities, p);
    if (biases != nullptr) {
      const auto added = load_pack<size>(biases, p);
      for (int i = 0; i < size; ++i) pack.values[i] += added.values[i];
    }
    for (int i = 0; i < size; ++i) {
      const uint64_t rank = choice_rank(pack.values[i], p * size + i);
      if (rank < *last && rank > best) best = rank;
    }
  });
  *last = row.max(best);
  return static_cast<int>(~static_cast<uint32_t>(*last));
}

/// Writes the choice and the weights of each token. All lanes of its row know the whole choice.
template <int size>
__global__ void router_top_k_rows(RouterRows rows, RouterChoice<float> choice) {
  const RouterRow<size> row(rows, blockIdx.x * rows_at_once(rows));
  const float* const probabilities = choice.probabilities + row.token * choice.experts;
  int32_t* const chosen = choice.indices + row.token * choice.k;
  const auto k = static_cast<int>(choice.k);
  uint64_t last = ~uint64_t{0};
  float sum = 0;  // in the order of the choice, as in the plain kernel
  for (int j = 0; j < k; ++j) {
    int expert = 0;
    if (choice.pinned == nullptr) {
      expert = choice.forced_uniform ? static_cast<int>((row.token * k + j) % choice.experts)
                                     : next_expert(row, probabilities, choice.biases, &last);
    }
    if (!row.exists) continue;
    if (choice.pinned != nullptr) expert = choice.pinned[row.token * k + j];
    if (j % row.lanes == row.member) chosen[j] = expert;
    if (choice.renormalise) sum += probabilities[expert];
  }
  if (!row.exists) return;
  const float divisor = choice.renormalise ? sum : 1.0f;
  float* const weights = choice.weights + row.token * choice.k;
  // This lane reads only the choices that it wrote itself.
  for (int j = row.member; j < k; j += row.lanes) weights[j] = probabilities[chosen[j]] / divisor;
}

/// Writes the gradient of the probabilities. It is 0 for experts that were not chosen. For the j-th
/// chosen one it is g_j, the gradient of its weight w_j. If the weights were divided by the sum s
/// of the chosen probabilities, it is (g_j - Σ_i g_i w_i) / s.
template <int size>
__global__ void router_top_k_gradient_rows(RouterRows rows, RouterChoiceGradient<float> gradient) {
  const RouterRow<size> row(rows, blockIdx.x * rows_at_once(rows));
  if (!row.exists) return;
  const int64_t start = row.token * gradient.experts;
  const int32_t* const chosen = gradient.indices + row.token * gradient.k;
  const float* const weights_gradient = gradient.weights_gradient + row.token * gradient.k;
  const float* const probabilities = gradient.probabilities + start;
  const auto k = static_cast<int>(gradient.k);
  float divisor = 1;
  float mean_gradient = 0;  // Σ_i g_i w_i
  if (gradient.renormalise) {
    float sum = 0;
    for (int j = 0; j < k; ++j) sum += probabilities[chosen[j]];
    divisor = sum;
    for (int j = 0; j < k; ++j) {
      mean_gradient += weights_gradient[j] * probabilities[chosen[j]] / divisor;
    }
  }
  row.for_each_pack([&](int p) {
    Pack<float, size> pack{};
    for (int j = 0; j < k; ++j) {
      const int index = chosen[j] - p * size;
      if (index < 0 || index >= size) continue;
      const float value = (weights_gradient[j] - mean_gradient) / divisor;
      for (int i = 0; i < size; ++i) pack.values[i] = i == index ? value : pack.values[i];
    }
    store_pack(gradient.probabilities_gradient + start, p, pack);
  });
}

}  // namespace

template <typename Vendor>
void router_top_k_device(const RouterChoice<float>& choice, Stream& stream) {
  for_router_rows(choice.tokens, choice.experts,
                  [&](auto size, const RouterRows& rows, const Grid& grid) {
                    launch(router_top_k_rows<size>, grid, stream, rows, choice);
                  });
}

template <typename Vendor>
void router_top_k_gradient_device(const RouterChoiceGradient<float>& gradient, Stream& stream) {
  for_router_rows(gradient.tokens, gradient.experts,
                  [&](auto size, const RouterRows& rows, const Grid& grid) {
                    launch(router_top_k_gradient_rows<size>, grid, stream, rows, gradient);
                  });
}

template void router_top_k_device<ThisVendor>(const RouterChoice<float>&, Stream&);
template void router_top_k_gradient_device<ThisVendor>(const RouterChoiceGradient<float>&, Stream&);

}  // namespace tessera
