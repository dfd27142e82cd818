#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/math/vector_math.h"
#include "ops/support.h"

namespace tessera {

// The router's kernels for the processor. They handle one row at a time, which has a number for
// each expert of one token. Plain and fast kernels differ only in the exponential, a template
// parameter. Device kernels are in router_kernels.h.

/// Returns whether a spec is a matrix in a type that routers compute in: f32 or f64.
inline bool is_router_matrix(const Spec& spec) {
  return spec.shape.rank() == 2 && (spec.dtype == DType::f32 || spec.dtype == DType::f64);
}

/// Calls body(t) for each of `tokens` tokens, on several threads. `work` estimates the vectorised
/// operations for a token (4 for an exponential), to decide how many tokens are worth a thread.
template <typename Body>
void for_each_token(const Execution& execution, int64_t tokens, int64_t work, Body&& body) {
  parallel_each(execution.runtime.threads(), tokens, row_grain(work), [&](int64_t t) { body(t); });
}

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

/// Calls function(T{}, exponential) for a tensor of f64 or f32. The exponential is the exact one
/// for the plain kernel, and the fast one otherwise.
template <typename Function>
void dispatch_exponential(const Runtime& runtime, DType dtype, Function&& function) {
  if (dtype == DType::f64) {
    function(double{}, ExactExponential{});
  } else if (use_plain(runtime.target(), dtype)) {
    function(float{}, ExactExponential{});
  } else {
    function(float{}, FastExponential{});
  }
}

/// Returns the largest element of a row. NaNs are skipped. Returns -inf if all elements are NaN.
template <typename T>
T row_maximum(const T* row, int64_t count) {
  T maximum = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < count; ++i) maximum = row[i] > maximum ? row[i] : maximum;
  return maximum;
}

/// Writes probabilities = softmax(logits); both may be one memory. A NaN makes the row NaN.
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

/// Returns log Σ_e exp(logits_e); NaN if a logit is NaN.
template <typename T, typename Exponential>
T log_sum_exp(const T* logits, int64_t experts, Exponential exponential) {
  const T maximum = row_maximum(logits, experts);
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t e = 0; e < experts; ++e) sum += exponential(logits[e] - maximum);
  return maximum + std::log(sum);
}

}  // namespace tessera
