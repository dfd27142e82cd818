#pragma once

#include "ops/activation/activation_kernels.h"
#include "ops/math/vector_math.h"

namespace tessera {

/// Returns gelu and its derivative at x (see activation_plain()), with the fast exp and erf.
inline ActivationPoint<float> gelu_fast(float x) {
  constexpr float kInverseSquareRootOf2 = 0.707106781f;
  constexpr float kInverseSquareRootOf2Pi = 0.398942280f;
  const float cdf = 0.5f + 0.5f * erf_fast(x * kInverseSquareRootOf2);
  const float pdf = kInverseSquareRootOf2Pi * exp_fast(-0.5f * x * x);
  return {x * cdf, cdf + x * pdf};
}

}  // namespace tessera
