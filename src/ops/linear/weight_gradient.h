#pragma once

#include "program/builder.h"

namespace tessera {

/// gradientᵀ · x: gradient [tokens, out], x [tokens, in], result [out, in] in the accumulation
/// type. For a parameter the product adds into its main gradient, which is what is given back; for
/// another weight the result is a new value.
Value linear_weight_gradient(Builder& builder, Value x, Value gradient, Value weight);

}  // namespace tessera
