#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/math/vector_math.h"

namespace tessera {

// Row kernels of the router. A row is one token's experts. The kernels are templates of the
// exponential function, the only difference between the plain kernel and the fast one.

/// The standard library's exponential, for the plain kernels.
struct ExactExponential {
  template <typename T>
  T operator()(T x) const {
    return std::exp(x);
  }
};

/// An exponential that vectorises, for the fast kernels.
struct FastExponential {
  float operator()(float x) const { return exp_fast(x); }
};

/// Returns the largest number of a row. NaNs are skipped. Returns -inf if there is no number.
template <typename T>
T row_maximum(const T* row, int64_t count) {
  T maximum = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < count; ++i) maximum = row[i] > maximum ? row[i] : maximum;
  return maximum;
}

/// Writes probabilities = softmax(logits); both may be the same memory. A NaN makes the whole row
/// NaN.
template <typename T, typename Exponential>
void softmax_row(const T* logits, int64_t experts, T* probabilities, Exponential exponential) {
  const T maximum = row_maximum(logits, experts);
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t e = 0; e < experts; ++e) {
    probabilities[e] = exponential(logits[e] - maximum);
    sum += probabilities[e];
  }
  for (int64_t e = 0; e < experts; ++e) probabilities[e] /= sum;
}

/// Writes logits_gradient = p ⊙ (probabilities_gradient − Σ_e p_e probabilities_gradient_e); both
/// gradients may be the same memory.
template <typename T>
void softmax_row_gradient(const T* probabilities, const T* probabilities_gradient, int64_t experts,
                          T* logits_gradient) {
  T dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t e = 0; e < experts; ++e) dot += probabilities[e] * probabilities_gradient[e];
#pragma omp simd
  for (int64_t e = 0; e < experts; ++e) {
    logits_gradient[e] = probabilities[e] * (probabilities_gradient[e] - dot);
  }
}

/// Returns log Σ_e exp(logits_e).
template <typename T, typename Exponential>
T log_sum_exp(const T* logits, int64_t experts, Exponential exponential) {
  const T maximum = row_maximum(logits, experts);
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t e = 0; e < experts; ++e) sum += exponential(logits[e] - maximum);
  return maximum + std::log(sum);
}

}  // namespace tessera
