#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/math/vector_math.h"

namespace tessera {

/// Writes a value as bytes to memory that may hold another type. An assignment through a pointer of
/// the wrong type would be undefined: the compiler could move it before earlier reads of this
/// memory.
template <typename Out>
void store_bytes(Out value, Out* to) {
  std::memcpy(to, &value, sizeof(Out));
}

/// The definition of the computations on one token's logits [vocabulary]. FastRows is the fast
/// version.
///
/// Ranks that share a vocabulary call largest() and sum_of_exponentials(), the two parts of
/// row_log_sum_exp(), one by one.
///
/// gradient() writes scale · (p · (1 + 2 z logsumexp) - hit) for each class, where the probability
/// p is exp(logit - logsumexp), and hit is 1 for the target and 0 for other classes. With a target
/// of -1, no class is hit. A scale of 0 gives zeros for finite logits. `gradient` may be the
/// logits' memory, if its type is not wider: each logit is read before it is overwritten.
template <typename Wide>
struct PlainRows {
  static Wide largest(const Wide* logits, int64_t vocabulary) {
    return *std::max_element(logits, logits + vocabulary);
  }
  static Wide sum_of_exponentials(const Wide* logits, int64_t vocabulary, Wide largest) {
    Wide sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(logits[v] - largest);
    return sum;
  }
  template <typename Out>
  static void gradient(const Wide* logits, int64_t vocabulary, Wide log_sum_exp, int32_t target,
                       Wide scale, Wide z, Out* gradient) {
    for (int64_t v = 0; v < vocabulary; ++v) {
      const Wide probability = std::exp(logits[v] - log_sum_exp);
      const Wide hit = v == target ? Wide{1} : Wide{0};
      const Wide result = scale * (probability * (1 + 2 * z * log_sum_exp) - hit);
      store_bytes(static_cast<Out>(result), gradient + v);
    }
  }
};

/// PlainRows in f32, in loops that vectorise. The target's class is written last, so the loop over
/// the classes has no condition. "ivdep" holds: no gradient overwrites an unread logit.
struct FastRows {
  static float largest(const float* logits, int64_t vocabulary) {
    float largest = logits[0];
#pragma omp simd reduction(max : largest)
    for (int64_t v = 0; v < vocabulary; ++v) largest = std::max(largest, logits[v]);
    return largest;
  }
  static float sum_of_exponentials(const float* logits, int64_t vocabulary, float largest) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t v = 0; v < vocabulary; ++v) sum += exp_fast(logits[v] - largest);
    return sum;
  }
  template <typename Out>
  static void gradient(const float* logits, int64_t vocabulary, float log_sum_exp, int32_t target,
                       float scale, float z, Out* gradient) {
    const float factor = scale * (1 + 2 * z * log_sum_exp);
    const float target_logit = target >= 0 ? logits[target] : 0;  // before it is overwritten
#pragma GCC ivdep
    for (int64_t v = 0; v < vocabulary; ++v) {
      store_bytes(static_cast<Out>(factor * exp_fast(logits[v] - log_sum_exp)), gradient + v);
    }
    if (target >= 0) {
      const float weighted = factor * exp_fast(target_logit - log_sum_exp);
      store_bytes(static_cast<Out>(weighted - scale), gradient + target);
    }
  }
};

/// Returns log Σ exp(logit) = largest + log Σ exp(logit - largest), with the functions of Rows.
template <typename Rows, typename Wide>
Wide row_log_sum_exp(const Wide* logits, int64_t vocabulary) {
  const Wide largest = Rows::largest(logits, vocabulary);
  return largest + std::log(Rows::sum_of_exponentials(logits, vocabulary, largest));
}

}  // namespace tessera
