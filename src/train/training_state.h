#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "config/run_config.h"
#include "data/loader.h"
#include "state/parameter_store.h"
#include "train/run_data.h"
#include "train/save_state.h"

namespace tessera {

/// The state of training, apart from its tensors, after the last finished step.
struct TrainingPosition {
  int64_t step = 0;           ///< the number of optimizer steps done
  int64_t tokens = 0;         ///< the number of tokens trained on
  int64_t micro_batches = 0;  ///< the number trained on, each counted once for all ranks
  LoaderState data;           ///< position of the next batch
  /// The files that the run's checkpoints carry. They are kept in memory from the start, so that
  /// the run can save even if a file is damaged or removed later.
  std::vector<CarriedFile> carried;
  std::string unsaved_metrics;  ///< lines of metrics.jsonl that are not on the disk (MetricsFile)
};

/// Saves everything that the run needs to continue bit for bit: master weights, moments, data
/// position, seed (random numbers have no other state), configuration and tokenizer. All ranks call
/// it, and each writes its share (see save_state()).
void save_training(const RunConfig& config, const ParameterStore& store,
                   const TrainingPosition& position, const RunData& data, const StateRanks& ranks);

/// Removes old checkpoints by the keep rule. Throws Error if one cannot be removed.
void prune_training(const RunConfig& config);

/// Throws Error unless a new run can begin in run.directory: it must hold neither the checkpoints
/// of a run, complete or damaged, nor a model that `checkpoint import` wrote. The partial
/// checkpoint of a killed save does not count.
void require_fresh(const RunConfig& config);

/// Removes what a killed save left behind, and loads the run's newest complete checkpoint into the
/// store. Returns its position. All ranks call it, and each gets the pieces that it holds (see
/// load_state()). If a checkpoint turns out to be damaged, warns and takes the one before it.
/// Throws Error if none is left, and as restored_state() and require_same_training() do. Sets
/// checkpoint.initial to the value with which the run began: a new value would have no effect.
TrainingPosition load_training(RunConfig& config, const ParameterStore& store, const RunData& data,
                               const Logger& logger, const StateRanks& ranks);

/// Returns the model of the run in run.directory, as its checkpoints record it. The keys of [model]
/// of a resumed run start from it. This matters if the run began with the weights of another
/// checkpoint, which may no longer exist. Throws Error if the run holds no complete checkpoint.
ModelConfig resumed_model(const RunConfig& named);

/// Returns runs/NAME/checkpoints.
fs::path checkpoints_directory(const RunConfig& config);

}  // namespace tessera
