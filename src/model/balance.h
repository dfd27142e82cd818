#pragma once

#include <optional>
#include <string>

#include "model/model_writer.h"

namespace tessera {

/// The biases that balance a router's choice, [classes], as a program reads them.
struct BalanceBiases {
  Value biases;
  std::string unit;  ///< where they are kept between steps
  /// The controller's state, [classes] each, if it is a controller that changes them.
  Value first_moment, second_moment;
};

/// Declares a layer's biases as a unit of their own, if the configuration balances by biases. They
/// are zero at first, and -1 for the skip class. A program that trains reads and changes a working
/// copy of the unit; the step's other programs carry it to and fro (state/balance_program.h). So a
/// step that cannot be completed leaves no trace.
std::optional<BalanceBiases> declare_balance_biases(ModelWriter& writer);

/// Lets the controller change the biases after a micro-batch of these counts, i32 [classes], of all
/// ranks. Does nothing in a program that does not train, and if no controller changes them.
void follow_load(ModelWriter& writer, const BalanceBiases& balance, Value counts);

}  // namespace tessera
