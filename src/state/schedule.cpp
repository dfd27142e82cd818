#include "state/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {

double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps) {
  const double peak = config.learning_rate;
  if (step < config.warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  const int64_t decay_steps = std::max<int64_t>(steps - config.warmup_steps, 1);
  const double progress = std::clamp(
      static_cast<double>(step - config.warmup_steps) / static_cast<double>(decay_steps), 0.0, 1.0);
  const double span = peak - config.minimum_learning_rate;
  if (config.schedule == Schedule::cosine) {
    return config.minimum_learning_rate +
           span * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  }
  if (config.schedule == Schedule::linear) return peak - span * progress;
  return peak;
}

double clip_norm(const OptimizerConfig& config, int64_t step) {
  const bool warming = config.clip_after_warmup && step <= config.warmup_steps;
  return warming ? 0.0 : config.clip_norm;
}

}  // namespace tessera
