#pragma once

#include <optional>

#include "program/builder.h"

namespace tessera {

// The element-wise parts of a depth-averaged router (ZAYA1, section IV-A). It runs in the
// accumulation type: f32, or f64 for f64. A row belongs to a token. Vectors are shared by all rows,
// and their gradients are sums over rows in a fixed order.

/// Computes exponential depth averaging: x + bias + scale ⊙ previous. x and previous are [tokens,
/// width], bias and scale [width]. The first layer has no previous state and no scale. Throws
/// InternalError if the shapes or types do not fit, or only one of scale and previous is given.
Value depth_average(Builder& builder, Value x, Value bias, std::optional<Value> scale,
                    std::optional<Value> previous);

/// Computes gelu(x + bias), with the normal distribution's erf. x is [tokens, width], bias [width].
/// The gradient computes x + bias again. Throws InternalError if the shapes or types do not fit.
Value biased_gelu(Builder& builder, Value x, Value bias);

}  // namespace tessera
