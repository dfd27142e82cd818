#pragma once

#include <span>
#include <vector>

#include "model/chunk.h"
#include "model/parameter.h"
#include "state/optimizer_config.h"

namespace tessera {

/// What stands before the micro-batches of a step: main gradients and sums become zero.
Program write_step_start(std::span<const ParameterUnit> units, std::span<const StepSum> sums);

/// What stands after them: the gradients' norm, clipping and AdamW over all units.
struct UpdateProgram {
  Program program;
  Value learning_rate;  ///< f64 [1], as the next two: an input of each step (see schedule.h)
  Value clip_norm;      ///< 0: no clipping
  Value step;           ///< counted from 1
  Value gradient_norm;  ///< f64 [1]: an output
};

/// `parameters` are those of `units`, in the order in which their squares are added up. Nothing is
/// updated where the norm or one of `losses`, sums of shape [1], is not finite.
UpdateProgram write_update(std::span<const ParameterUnit> units,
                           std::span<const ParameterSpec> parameters,
                           std::span<const StepSum> losses, const OptimizerConfig& config);

/// Whether weight decay applies to a parameter under the configured rule.
bool decays(const OptimizerConfig& config, const ParameterSpec& spec);

}  // namespace tessera
