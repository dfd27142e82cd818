#pragma once

#include "program/builder.h"

namespace tessera {

/// Returns gradientᵀ · x. gradient is [tokens, out], x is [tokens, in], and the result is [out, in]
/// in the accumulation type. For a parameter, the product is added to the main gradient, which is
/// returned. For another weight the result is a new value.
Value linear_weight_gradient(Builder& builder, Value x, Value gradient, Value weight);

}  // namespace tessera
