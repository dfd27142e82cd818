#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tessera {

// Row kernels of the router's choice, one token each. The choice is exact, so one kernel is both
// the plain and the fast one.

/// Writes the indices of the k largest probabilities to `chosen`, largest first. Biases, unless
/// null, are added before the comparison. Among equals the lower index comes first. A NaN ranks
/// below every number. Each expert is inserted into k sorted slots.
template <typename T>
void choose_experts(const T* probabilities, const T* biases, int64_t experts, int64_t k,
                    int32_t* chosen) {
  const auto rank = [=](int64_t expert) {
    const T probability = probabilities[expert] + (biases != nullptr ? biases[expert] : T{0});
    return std::isnan(probability) ? -std::numeric_limits<T>::infinity() : probability;
  };
  for (int64_t expert = 0; expert < experts; ++expert) {
    const T candidate = rank(expert);
    int64_t slot = std::min(expert, k);
    while (slot > 0 && candidate > rank(chosen[slot - 1])) {
      if (slot < k) chosen[slot] = chosen[slot - 1];
      --slot;
    }
    if (slot < k) chosen[slot] = static_cast<int32_t>(expert);
  }
}

/// Returns the sum of the chosen probabilities.
template <typename T>
T chosen_sum(const T* probabilities, const int32_t* chosen, int64_t k) {
  T sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += probabilities[chosen[j]];
  return sum;
}

/// Computes weights_j = p_j, or p_j / Σ_i p_i over the chosen experts if `renormalise`.
template <typename T>
void chosen_weights(const T* probabilities, const int32_t* chosen, int64_t k, bool renormalise,
                    T* weights) {
  const T divisor = renormalise ? chosen_sum(probabilities, chosen, k) : T{1};
  for (int64_t j = 0; j < k; ++j) weights[j] = probabilities[chosen[j]] / divisor;
}

/// Computes the gradient of chosen_weights(), with g = weights_gradient. It is zero for experts
/// that are not chosen, and g_j for chosen ones. For renormalised weights w = p / s it is
/// (g_j − Σ_i g_i w_i) / s.
template <typename T>
void chosen_weights_gradient(const T* probabilities, const int32_t* chosen,
                             const T* weights_gradient, int64_t experts, int64_t k,
                             bool renormalise, T* probabilities_gradient) {
  std::fill_n(probabilities_gradient, experts, T{0});
  T divisor = 1;
  T shared = 0;
  if (renormalise) {
    divisor = chosen_sum(probabilities, chosen, k);
    for (int64_t j = 0; j < k; ++j)
      shared += weights_gradient[j] * probabilities[chosen[j]] / divisor;
  }
  for (int64_t j = 0; j < k; ++j)
    probabilities_gradient[chosen[j]] = (weights_gradient[j] - shared) / divisor;
}

}  // namespace tessera
