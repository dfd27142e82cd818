#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/data_config.h"
#include "engine/recompute.h"
#include "model/model_config.h"
#include "state/optimizer_config.h"
#include "tensor/dtype.h"

namespace tessera {

/// The [run] section.
struct RunSection {
  std::string directory = "runs/demo";  ///< everything a run writes
  std::string device = "cpu";
  int64_t threads = 0;       ///< 0: all cores
  bool bind_threads = true;  ///< each thread on a core of its own, where there are as many
  int64_t trace_step = 0;    ///< the step whose trace is written to trace.json; 0: none
  bool tensorboard = true;   ///< TensorBoard's events in tensorboard/
  /// What `tessera bench all` wrote, whose matrix-product rate MFU refers to; empty: it is measured
  /// at the start.
  std::string hardware;
  bool csv = false;  ///< metrics.csv beside metrics.jsonl
};

/// The [train] section.
struct TrainSection {
  int64_t steps = 300;
  int64_t stop_after = 0;   ///< save and exit after this many steps, the schedule still being that
                            ///< of `steps`; 0: at `steps`
  int64_t micro_batch = 8;  ///< sequences
  int64_t global_batch = 16;  ///< sequences; a multiple of micro_batch
  Precision precision = Precision::bf16;
  std::vector<Recomputed> recompute;
  uint64_t seed = 1;
  int64_t evaluate_every = 0;    ///< steps between evaluations on held-out data; 0: none
  int64_t evaluate_batches = 8;  ///< micro-batches of one evaluation
};

/// The [checkpoint] section.
struct CheckpointSection {
  int64_t every = 100;     ///< steps; 0: only at the end
  int64_t keep = 2;        ///< the newest ones that are kept (dual checkpointing, Optimus §4)
  int64_t keep_every = 0;  ///< steps whose multiples are kept for good; 0: none
  std::string initial;     ///< the checkpoint whose weights a new run starts with; empty: none
};

/// One TOML file: everything about a run.
struct RunConfig {
  RunSection run;
  ModelConfig model;
  DataConfig data;
  TrainSection train;
  OptimizerConfig optimizer;
  CheckpointSection checkpoint;
};

}  // namespace tessera
