#pragma once

#include <cstdint>
#include <string>

#include "config/run_config.h"

namespace tessera {

/// Compares the phases of a configuration with those of a checkpoint that was saved after so many
/// steps. What a run has trained may not change: of a phase that is over, its steps, context,
/// global batch, rope_theta, sources and learning rates; of the phase that it stands in, context,
/// global batch and rope_theta, and it may not end before this step. All else is free, as it is
/// without phases: how long the phase goes on, with which learning rate, what phases follow. Throws
/// Error, which begins with `origin` and names the key.
void require_same_phases(const RunConfig& saved, const RunConfig& config, int64_t step,
                         const std::string& origin);

}  // namespace tessera
