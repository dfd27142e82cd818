#pragma once

#include "ops/activation/activation_kind.h"
#include "program/builder.h"

namespace tessera {

/// activation(gate) · up, element by element: SwiGLU or GeGLU. gate and up have one shape and one
/// floating type, which is the output's; it is computed in the accumulation type and rounded once.
/// The gradient computes the activation again from gate and up, so that only these stay in memory.
/// Throws InternalError when shapes or types differ.
Value gated_activation(Builder& builder, Value gate, Value up, Activation kind);

}  // namespace tessera
