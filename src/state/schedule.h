#pragma once

#include <cstdint>

#include "state/optimizer_config.h"

namespace tessera {

/// The learning rate of step `step` (counted from 1) of `steps`: linear from 0 to the peak over the
/// warm-up, then cosine or linear down to the minimum at the last step, or constant.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps);

/// The norm to which gradients are clipped at step `step`; 0 where none is (none configured, or the
/// warm-up where clip_after_warmup is set).
double clip_norm(const OptimizerConfig& config, int64_t step);

}  // namespace tessera
