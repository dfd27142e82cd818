#pragma once

#include <vector>

#include "comm/mesh.h"
#include "config/phases.h"
#include "config/run_config.h"
#include "train/run_data.h"

namespace tessera {

/// What all ranks of a run know before it begins.
struct SharedRun {
  RunConfig config;  ///< resolved
  std::vector<RunPhase> phases;
  Mesh mesh;
  RunData data;
  std::vector<double> flops;  ///< by phase: the useful ones of a step, of all ranks
  double peak_flops = 0;      ///< of all ranks, per second; 0 until the run has measured it
  int64_t memory_bytes = 0;   ///< of the arenas of all ranks

  const RunPhase& phase_of(int64_t step) const { return phases[phase_at(phases, step)]; }
  /// The useful FLOPs of a step, and of all steps up to it.
  double flops_of(int64_t step) const { return flops[phase_at(phases, step)]; }
  double flops_until(int64_t step) const;
  /// The step after which this call of train() ends.
  int64_t last_step() const {
    return config.train.stop_after > 0 ? config.train.stop_after : config.train.steps;
  }
};

}  // namespace tessera
