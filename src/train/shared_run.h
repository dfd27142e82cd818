#pragma once

#include "comm/mesh.h"
#include "config/run_config.h"
#include "data/sources/open_data.h"

namespace tessera {

/// What all ranks of a run know before it begins.
struct SharedRun {
  RunConfig config;  ///< resolved
  Mesh mesh;
  TrainingData data;
  double flops = 0;          ///< the useful ones of a step, of all ranks
  double peak_flops = 0;     ///< of all ranks, per second; 0 until the run has measured it
  int64_t memory_bytes = 0;  ///< of the arenas of all ranks

  /// The step after which this call of train() ends.
  int64_t last_step() const {
    return config.train.stop_after > 0 ? config.train.stop_after : config.train.steps;
  }
};

}  // namespace tessera
