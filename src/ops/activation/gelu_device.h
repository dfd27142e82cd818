#pragma once

#include "device/kernel.h"
#include "ops/activation/activation_kernels.h"

namespace tessera {
namespace {

/// Returns gelu and its derivative at x, on a device (see activation_plain()).
__device__ inline ActivationPoint<float> gelu_on_device(float x) {
  constexpr float kInverseSquareRootOf2 = 0.707106781f;
  constexpr float kInverseSquareRootOf2Pi = 0.398942280f;
  const float cdf = 0.5f + 0.5f * erff(x * kInverseSquareRootOf2);
  const float pdf = kInverseSquareRootOf2Pi * expf(-0.5f * x * x);
  return {x * cdf, cdf + x * pdf};
}

}  // namespace
}  // namespace tessera
