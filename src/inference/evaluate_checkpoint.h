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

/// The options of evaluate_checkpoint().
struct CheckpointEvaluationOptions {
  std::string checkpoint;  ///< a run's folder, or one checkpoint
  /// Data tokenized as the model's training data was. Without a path: the held-out part of the
  /// model's training data.
  SourceConfig data;
  int64_t batch = 8;            ///< sequences at a time
  int64_t instances = 0;        ///< at most this many of each source; 0: all
  int threads = 0;              ///< of all ranks together; 0: all usable cores
  int ranks = 1;                ///< that share the sequences and the model
  bool processes = false;       ///< true if the ranks are processes; otherwise they are threads
  ParallelSection parallel;     ///< the layout of the ranks; data parallelism takes the rest
  Device device = Device::cpu;  ///< the device that computes
  bool baselines = false;       ///< true to report n-gram models of the training data, too
};

/// The losses of a checkpoint on text that it was not trained on.
struct CheckpointEvaluation {
  fs::path checkpoint;
  int64_t step = 0;
  std::vector<SourceEvaluation> sources;
  Evaluation mean;  ///< the mean loss by the sources' weights, and the sums of their counts
  std::optional<BaselineLoss> baselines;
  double capacity_factor = 0;  ///< of the training. The report notes that evaluations drop no token

  /// Sets the losses of the sources and their mean.
  void set_losses(std::vector<SourceEvaluation> evaluations);
  /// Returns a table for people.
  std::string text() const;
  /// Returns one JSON object on one line.
  std::string json() const;
};

/// Evaluates a checkpoint on held-out data and returns its losses. Several ranks are threads of
/// this process. Throws Error
///  - when the data was not tokenized as the model's training data was,
///  - when the ranks cannot share the model or a batch,
///  - when the evaluation does not fit this machine, before it takes the memory,
///  - and when `baselines` are wanted for a mix or for data without a training part.
CheckpointEvaluation evaluate_checkpoint(const CheckpointEvaluationOptions& options);

}  // namespace tessera
