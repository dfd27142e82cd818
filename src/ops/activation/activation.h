#pragma once

#include <optional>

#include "ops/activation/activation_kind.h"
#include "program/builder.h"

namespace tessera {

/// Computes activation(gate) · up, element by element: SwiGLU or GeGLU. gate and up have the same
/// shape and the same floating type, which is also the output's. Each product is computed in the
/// accumulation type and rounded once. The gradient computes the activation again from gate and up,
/// so only these two stay in memory.
///
/// `offsets`, i32 [experts + 1], are those of the grouped_linear() that made gate and up [rows,
/// width]. The rows past the last offset are then neither read nor written, here and in the
/// gradient. Throws InternalError if shapes or types differ.
Value gated_activation(Builder& builder, Value gate, Value up, Activation kind,
                       std::optional<Value> offsets = {});

}  // namespace tessera
