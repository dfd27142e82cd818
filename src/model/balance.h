#pragma once

#include <optional>
#include <string>

#include "model/model_writer.h"

namespace tessera {

/// The biases that balance a router's choice, [classes], as a program reads them.
struct BalanceBiases {
  Value biases;
  std::string unit;  ///< the unit that keeps them between steps
  /// The controller's moments, [classes] each, if a controller changes the biases.
  Value first_moment, second_moment;
};

/// Declares a layer's biases as a unit of their own and returns them, if the configuration balances
/// by biases. They are zero at first, and -1 for the skip class. A program that trains reads and
/// changes a working copy of the unit. The step's other programs copy the unit to it and back
/// (state/balance_program.h). So a step that cannot be completed changes nothing.
std::optional<BalanceBiases> declare_balance_biases(ModelWriter& writer);

/// Writes the controller's update of the biases by a micro-batch's counts, i32 [classes], of all
/// ranks. Does nothing in a program that does not train, and if no controller changes the biases.
void follow_load(ModelWriter& writer, const BalanceBiases& balance, Value counts);

}  // namespace tessera
