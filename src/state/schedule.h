#pragma once

#include <cstdint>

#include "state/optimizer_config.h"

namespace tessera {

/// Returns the learning rate of step `step` (counted from 1) of `steps`. Step s of the w steps of
/// the warm-up has s / w of the peak. After that the rate follows a cosine or a line down to the
/// minimum at the last step, or stays at the peak.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps);

/// Returns the norm to which gradients are clipped at step `step`. It is 0 if they are not clipped:
/// no norm is configured, or clip_after_warmup is set and the step belongs to the warm-up.
double clip_norm(const OptimizerConfig& config, int64_t step);

}  // namespace tessera
