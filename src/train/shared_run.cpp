#include "train/shared_run.h"

namespace tessera {

double SharedRun::flops_until(int64_t step) const {
  const size_t current = phase_at(phases, step);
  double sum = 0;
  for (size_t phase = 0; phase <= current; ++phase) {
    const int64_t end = phase == current ? step : phases[phase].last_step;
    sum += flops[phase] * static_cast<double>(end - phases[phase].first_step + 1);
  }
  return sum;
}

}  // namespace tessera
