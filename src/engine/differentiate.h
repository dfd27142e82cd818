#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// What a value is whose gradient is given.
enum class SeedOf {
  loss,      ///< a number to be made small, with the weight of one loss as its gradient
  boundary,  ///< a result that other programs go on with, of which they give the gradient
};

/// A value of the forward pass and the value that holds its gradient (an input of the program).
struct Seed {
  Value value;
  Value gradient;
  SeedOf of = SeedOf::loss;
};

/// Appends the backward pass: the nodes in reverse, each by its own gradient rule. The gradients
/// that several consumers give for one value are summed in the accumulation type and rounded once.
/// Gradients of parameters are added into their main gradients. Inputs of the program get no
/// gradients, except those in `wanted`, a chunk's boundary. Returns the gradients of `wanted`, of
/// the same types and in the same order (null if nothing depends on one).
///
/// A loss is invariant or partial on every axis. One that is replicated would be counted once a
/// rank, because the weight of each rank's gradient would be a part of a sum; one that is split is
/// not one number. Throws DistributionError if a loss is of another type, or if the gradient of a
/// value does not lie as the dual of the value.
std::vector<Value> differentiate(Builder& builder, std::span<const Seed> seeds,
                                 std::span<const Value> wanted = {});

}  // namespace tessera
