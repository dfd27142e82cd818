#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// Applies each expert's linear maps to its own rows (Grouped_mm in stage 4 of FastSparseMoE). x is
/// [rows, in], and weight i is [local_experts, out_i, in] in x's type. Offsets are i32
/// [local_experts + 1], non-decreasing from 0. They must have the distribution of the rows, so the
/// offsets of another exchange are refused. Result i is [rows, out_i] in x's type: its rows from
/// offsets[e] to offsets[e + 1] are x · weight_i[e]ᵀ. Rows past the last offset are not written.
/// Several weights (gate and up) share one pass over x. Their input gradients are summed in the
/// accumulation type and rounded once.
std::vector<Value> grouped_linear(Builder& builder, Value x, std::span<const Value> weights,
                                  Value offsets);

/// Computes Σ_i gradient_i · weight_i[e] for the rows of each expert e. Gradients are
/// [rows, out_i]. The result is [rows, in] in the type of `x`, of which only the spec is read. Rows
/// past the last offset are not written.
Value grouped_linear_input_gradient(Builder& builder, std::span<const Value> gradients,
                                    std::span<const Value> weights, Value offsets, Value x);

/// Computes gradient[e]ᵀ · x[e] for each expert: [local_experts, out, in] in the accumulation type.
/// If the weight has a main gradient (Builder::main_gradient()), adds the products to that value
/// and returns it. Otherwise the result is a new value.
Value grouped_linear_weight_gradient(Builder& builder, Value x, Value gradient, Value offsets,
                                     Value weight);

}  // namespace tessera
