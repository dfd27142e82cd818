#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// The kind of a value with which the backward pass begins.
enum class SeedKind {
  loss,      ///< a number to be minimised; the gradient is its weight in the sum of all losses
  boundary,  ///< a result that another program reads, which returns the gradient
};

/// A value of the forward pass and its gradient, which an input or a state of the program holds.
struct Seed {
  Value value;
  Value gradient;
  SeedKind kind = SeedKind::loss;
};

/// Appends the backward pass, which begins with the gradients of `seeds`. It goes through the nodes
/// in reverse and applies the gradient rule of each. If several nodes read a value, their gradients
/// are summed in the accumulation dtype and rounded once. Gradients of parameters are added into
/// the main gradients. Inputs of the program get no gradients, except those in `wanted` (a chunk's
/// boundary). Returns the gradients of `wanted`, with the same dtypes and in the same order; null
/// for a value on which no seed depends.
///
/// A loss must be invariant or partial on every axis: a replicated one would count once per rank,
/// and a split one is not one number. Throws DistributionError if a loss has another type, or if
/// the distribution of a gradient is not the dual of its value's.
std::vector<Value> differentiate(Builder& builder, std::span<const Seed> seeds,
                                 std::span<const Value> wanted = {});

}  // namespace tessera
