#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// Each expert's linear maps on its own rows (Grouped_mm in stage 4 of FastSparseMoE): x [rows,
/// in], weights [local_experts, out_i, in] of x's type, offsets i32 [local_experts + 1]
/// (non-decreasing from 0); result i [rows, out_i], of x's type, where rows offsets[e] to offsets[e
/// + 1] are x · weight_i[e]ᵀ and rows past the last offset are zero. Several weights (gate and up)
/// share one pass over x, and their input gradients are summed in the accumulation type and rounded
/// once.
std::vector<Value> grouped_linear(Builder& builder, Value x, std::span<const Value> weights,
                                  Value offsets);

/// Σ_i gradient_i · weight_i, expert by expert: gradients [rows, out_i], result [rows, in] of the
/// type of `x`, which is only asked for its spec; zero past the last offset.
Value grouped_linear_input_gradient(Builder& builder, std::span<const Value> gradients,
                                    std::span<const Value> weights, Value offsets, Value x);

/// gradient[e]ᵀ · x[e] for each expert: [local_experts, out, in] in the accumulation type. For a
/// parameter the products add into its main gradient, which is what is given back; for another
/// weight the result is a new value.
Value grouped_linear_weight_gradient(Builder& builder, Value x, Value gradient, Value offsets,
                                     Value weight);

}  // namespace tessera
