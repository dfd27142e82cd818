#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// The kind of a value whose gradient is given.
enum class SeedOf {
  loss,      ///< a number to be minimised, whose gradient is the weight of one loss
  boundary,  ///< a result that other programs read, and whose gradient they return
};

/// A value of the forward pass and the value that holds its gradient (an input of the program).
struct Seed {
  Value value;
  Value gradient;
  SeedOf of = SeedOf::loss;
};

/// Appends the backward pass: the nodes in reverse, each by its own gradient rule. The gradients
/// that several consumers give for one value are summed in the accumulation dtype and rounded once.
/// Gradients of parameters are added into their main gradients. Inputs of the program get no
/// gradients, except those in `wanted`, a chunk's boundary. Returns the gradients of `wanted`, with
/// the same dtypes and in the same order (null if nothing depends on one).
///
/// A loss must be invariant or partial on every axis. A replicated loss would be counted once per
/// rank, because the weight of each rank's gradient would be a part of a sum. A split loss is not
/// one number. Throws DistributionError if a loss has another type, or if the distribution of a
/// gradient is not the dual of its value's.
std::vector<Value> differentiate(Builder& builder, std::span<const Seed> seeds,
                                 std::span<const Value> wanted = {});

}  // namespace tessera
