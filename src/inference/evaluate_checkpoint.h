#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/in_process/world.h"
#include "config/run_config.h"
#include "data/ngram.h"
#include "data/sources/open_data.h"
#include "inference/evaluate.h"

namespace tessera {

/// Which checkpoint to evaluate, and on what.
struct CheckpointEvaluationOptions {
  std::string checkpoint;  ///< a run's folder, or one checkpoint
  /// Data tokenized as the model's training data was. Without a path: the held-out part of the
  /// model's training data.
  SourceConfig data;
  int64_t batch = 8;            ///< sequences at a time
  int64_t instances = 0;        ///< at most this many of each source; 0: all
  int threads = 0;              ///< of all ranks together; 0: all usable cores
  int ranks = 1;                ///< threads of this process, or processes
  bool processes = false;       ///< the ranks are processes, and this is one of them
  ParallelSection parallel;     ///< how they share the work; data parallelism takes what is left
  Device device = Device::cpu;  ///< that computes
  bool baselines = false;       ///< also count n-grams on the training part of the data
};

/// The losses of a checkpoint on text it was not trained on.
struct CheckpointEvaluation {
  fs::path checkpoint;
  int64_t step = 0;
  std::vector<SourceEvaluation> sources;
  Evaluation model;  ///< over all sources
  std::optional<BaselineLoss> baselines;
  double capacity_factor = 0;  ///< of the training; an evaluation drops no token

  /// Sets the losses, and their mean.
  void set(std::vector<SourceEvaluation> of_sources);
  /// Returns a table for people.
  std::string text() const;
  /// Returns one JSON object on one line.
  std::string json() const;
};

/// Evaluates a checkpoint on held-out data. Throws Error when the data was not tokenized as the
/// model's training data was. Throws Error when the evaluation does not fit this machine, before it
/// takes the memory. Throws Error when `baselines` are asked of a mix or of data without a training
/// part.
CheckpointEvaluation evaluate_checkpoint(const CheckpointEvaluationOptions& options);

}  // namespace tessera
