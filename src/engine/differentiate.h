#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// A value of the forward pass and the value that holds its gradient (an input of the program).
struct Seed {
  Value value;
  Value gradient;
};

/// Appends the backward pass: the nodes in reverse, each by its own gradient rule. The gradients
/// that several consumers give for one value are summed in the accumulation type and rounded once.
/// Gradients of parameters are added into their main gradients. Inputs of the program get no
/// gradients, except those in `wanted`, a chunk's boundary. Returns the gradients of `wanted`, of
/// the same types and in the same order (null if nothing depends on one).
std::vector<Value> differentiate(Builder& builder, std::span<const Seed> seeds,
                                 std::span<const Value> wanted = {});

}  // namespace tessera
