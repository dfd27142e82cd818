#pragma once

#include <cstdint>
#include <string>

#include "config/run_config.h"

namespace tessera {

/// Throws Error, which begins with `origin` and names the key, if a configuration changes a phase
/// in which the run of a checkpoint has trained. The checkpoint was saved after `step` steps. In a
/// finished phase the steps, context, global batch, rope_theta, sources and learning rates must
/// stay. In the current phase the context, global batch and rope_theta must stay, and it must not
/// end before `step`. All else may change, as in a run without phases: how long the current phase
/// continues, its learning rate, and the phases that follow.
void require_same_phases(const RunConfig& saved, const RunConfig& config, int64_t step,
                         const std::string& origin);

}  // namespace tessera
