#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/parameter.h"

namespace tessera {

/// How the biases that balance routers are carried through a step.
struct BalanceOfStep {
  std::vector<std::string> units = {};  ///< of the biases, by mixture layer; none without them
  double rate = 0;                      ///< of the sign's rule
};

/// What the programs around the micro-batches of a step do with units of biases. Forward passes
/// read and change a working copy, so that a step which cannot be completed leaves no trace.
///
/// Writes the copies from what is kept to what is worked on, before the micro-batches.
void begin_balance(Builder& builder, std::span<const ParameterUnit> units);
/// After them: where biases follow the sign of the difference to an even load, moves them by the
/// counts of the step, `totals`, f64 [classes] for each layer. Then writes the copies back, unless
/// `scale` is NaN (see clip_gradients()).
void end_balance(Builder& builder, std::span<const ParameterUnit> units,
                 const BalanceOfStep& balance, std::span<const Value> totals, Value scale);

}  // namespace tessera
