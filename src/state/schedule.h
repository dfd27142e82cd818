#pragma once

#include <cstdint>

#include "state/optimizer_config.h"

namespace tessera {

/// Returns the learning rate of step `step` (counted from 1) of `steps`. It rises linearly from 0
/// to the peak over the warm-up. After that it follows a cosine or a line down to the minimum at
/// the last step, or stays constant.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps);

/// Returns the norm to which gradients are clipped at step `step`. It is 0 if they are not clipped:
/// none is configured, or clip_after_warmup is set and the warm-up is not over.
double clip_norm(const OptimizerConfig& config, int64_t step);

}  // namespace tessera
