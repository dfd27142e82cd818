#pragma once

#include <cmath>
#include <numbers>

#include "ops/activation/activation_kernels.h"
#include "ops/support.h"
#include "tensor/dtype.h"

namespace tessera {

/// Returns the activation and its derivative at x: their definition.
///   silu(x) = x s, silu'(x) = s (1 + x (1 - s)), where s = 1 / (1 + e^-x)
///   gelu(x) = x Φ, gelu'(x) = Φ + x φ, where Φ = (1 + erf(x / √2)) / 2, φ = e^(-x²/2) / √(2π)
template <typename Wide>
ActivationPoint<Wide> activation_plain(Activation kind, Wide x) {
  if (kind == Activation::silu) {
    const Wide sigmoid = 1 / (1 + std::exp(-x));
    return {x * sigmoid, sigmoid * (1 + x * (1 - sigmoid))};
  }
  const Wide cdf = (1 + std::erf(x / std::numbers::sqrt2_v<Wide>)) / 2;  // Φ
  const Wide pdf =                                                       // φ
      std::exp(-x * x / 2) * std::numbers::inv_sqrtpi_v<Wide> / std::numbers::sqrt2_v<Wide>;
  return {x * cdf, cdf + x * pdf};
}

/// Writes output[i] = activation(gate[i]) * up[i].
template <typename T>
void gated_plain(const GatedForward<T>& arguments, Activation kind, int threads) {
  using Wide = Compute<T>;
  parallel_each(threads, arguments.extent.elements, 1024, [&](int64_t i) {
    const Wide value = activation_plain(kind, static_cast<Wide>(arguments.gate[i])).value;
    arguments.output[i] = static_cast<T>(value * static_cast<Wide>(arguments.up[i]));
  });
}

/// Writes the gradients. They may be in the memory of gate and up, so an index's reads come first.
///   gate_gradient[i] = output_gradient[i] * up[i] * activation'(gate[i])
///   up_gradient[i] = output_gradient[i] * activation(gate[i])
template <typename T>
void gated_plain(const GatedBackward<T>& arguments, Activation kind, int threads) {
  using Wide = Compute<T>;
  parallel_each(threads, arguments.extent.elements, 1024, [&](int64_t i) {
    const auto [value, slope] = activation_plain(kind, static_cast<Wide>(arguments.gate[i]));
    const auto gradient = static_cast<Wide>(arguments.output_gradient[i]);
    const auto up = static_cast<Wide>(arguments.up[i]);
    arguments.gate_gradient[i] = static_cast<T>(gradient * up * slope);
    arguments.up_gradient[i] = static_cast<T>(gradient * value);
  });
}

}  // namespace tessera
