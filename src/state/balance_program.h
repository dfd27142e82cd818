#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/parameter.h"

namespace tessera {

/// The biases that balance the routers of mixture layers, and how one step changes them. The step
/// works on a copy of the biases, so a step that cannot be completed leaves no trace.
struct BalancedUnits {
  std::vector<std::string> units = {};  ///< unit names by mixture layer; may be empty
  double rate = 0;                      ///< as in balance_by_sign()
};

/// Appends the operation that copies the kept biases and moments to the working ones. It belongs to
/// the program that runs before the micro-batches.
void begin_balance(Builder& builder, std::span<const ParameterUnit> units);
/// Appends the copy back, to the program that runs after the micro-batches. A step whose `scale` is
/// NaN copies nothing back (see clip_gradients()). First changes biases with ChangedBy::sign by the
/// step's counts in `totals`, f64 [classes] by layer; forward passes have changed the others.
void end_balance(Builder& builder, std::span<const ParameterUnit> units,
                 const BalancedUnits& balance, std::span<const Value> totals, Value scale);

}  // namespace tessera
