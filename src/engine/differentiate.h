#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// A value of the forward pass and the value that holds its gradient (an input of the program).
struct Seed {
  Value value;
  Value gradient;
};

/// Appends the backward pass: the nodes in reverse, each by its own gradient rule. What several
/// consumers give back to one value is summed in the accumulation type and rounded once. Gradients
/// of parameters are added into their main gradients; inputs of the program get none.
void differentiate(Builder& builder, std::span<const Seed> seeds);

}  // namespace tessera
