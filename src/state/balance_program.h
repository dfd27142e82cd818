#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/parameter.h"

namespace tessera {

/// The biases that balance routers in a step. Forward passes read and change a working copy of
/// them, so a step that cannot be completed leaves no trace.
struct BalanceOfStep {
  std::vector<std::string> units = {};  ///< unit names by mixture layer; may be empty
  double rate = 0;                      ///< as in balance_by_sign()
};

/// Appends to the program before the micro-batches the copy from kept to working biases.
void begin_balance(Builder& builder, std::span<const ParameterUnit> units);
/// Appends to the program after the micro-batches the copy back, which is left out in a step whose
/// `scale` is NaN (see clip_gradients()). Biases that follow the sign of the difference to an even
/// load are moved first, by the counts of the step, `totals`, f64 [classes] for each layer.
void end_balance(Builder& builder, std::span<const ParameterUnit> units,
                 const BalanceOfStep& balance, std::span<const Value> totals, Value scale);

}  // namespace tessera
