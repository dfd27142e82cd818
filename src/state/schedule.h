#pragma once

#include <cstdint>

#include "state/optimizer_config.h"

namespace tessera {

/// The learning rate of step `step` (counted from 1) of `steps`: linear from 0 to the peak over the
/// warm-up, then cosine or linear down to the minimum at the last step, or constant.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps);

/// The factor that brings a gradient of norm `norm` down to clip_norm; 1 where no clipping applies
/// (none configured, a small norm, or the warm-up where clip_after_warmup is set).
double clip_factor(const OptimizerConfig& config, double norm, int64_t step);

}  // namespace tessera
