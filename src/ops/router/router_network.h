#pragma once

#include <optional>

#include "program/builder.h"

namespace tessera {

// The element-wise parts of a depth-averaged router (ZAYA1, section IV-A), a small network whose
// input also depends on the router of the layer before. It runs in f32 or f64. The tokens share the
// vectors (bias and scale), whose gradients are sums over the tokens in a fixed order.

/// Computes exponential depth averaging: x + bias + scale ⊙ previous. x and `previous`, the result
/// of the layer before, are [tokens, width]; bias and scale are [width]. The first layer has no
/// previous state and no scale. Throws InternalError if the shapes or types do not fit, or only one
/// of scale and previous is given.
Value depth_average(Builder& builder, Value x, Value bias, std::optional<Value> scale,
                    std::optional<Value> previous);

/// Computes gelu(x + bias), the exact GELU with erf. x is [tokens, width], bias is [width]. The
/// gradient computes x + bias again. Throws InternalError if the shapes or types do not fit.
Value biased_gelu(Builder& builder, Value x, Value bias);

}  // namespace tessera
