#pragma once

#include <vector>

#include "comm/mesh.h"
#include "config/phases.h"
#include "config/run_config.h"
#include "train/run_data.h"

namespace tessera {

/// The facts of a run that all ranks know before it begins.
struct SharedRun {
  RunConfig config;  ///< resolved
  std::vector<RunPhase> phases;
  Mesh mesh;
  RunData data;
  std::vector<double> flops;  ///< by phase: the useful FLOPs of a step, of all ranks
  double peak_flops = 0;      ///< FLOP/s of all ranks; 0 until the run has measured it
  int64_t memory_bytes = 0;   ///< of the arenas of all ranks

  const RunPhase& phase_of(int64_t step) const { return phases[phase_at(phases, step)]; }
  double flops_of(int64_t step) const { return flops[phase_at(phases, step)]; }
  /// Returns the useful FLOPs of all steps up to and including a step.
  double flops_until(int64_t step) const {
    const size_t current = phase_at(phases, step);
    double sum = 0;
    for (size_t phase = 0; phase <= current; ++phase) {
      const int64_t last = phase == current ? step : phases[phase].last_step;
      sum += flops[phase] * static_cast<double>(last - phases[phase].first_step + 1);
    }
    return sum;
  }
  /// Returns the step after which this call of train() ends.
  int64_t last_step() const {
    return config.train.stop_after > 0 ? config.train.stop_after : config.train.steps;
  }
};

}  // namespace tessera
