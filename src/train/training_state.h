#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/save.h"
#include "config/run_config.h"
#include "data/loader.h"
#include "state/parameter_store.h"

namespace tessera {

/// Where training stands beside its tensors.
struct TrainingPosition {
  int64_t step = 0;    ///< optimizer steps done
  int64_t tokens = 0;  ///< trained on so far
  LoaderState data;    ///< of the next batch
  /// What its checkpoints carry. It is in memory from the run's start on, so that no file that is
  /// damaged or gone meanwhile keeps the run from saving.
  std::vector<CarriedFile> carried;
};

/// Saves everything that the run needs to go on bit for bit: master weights, moments, data
/// position, seed (random numbers are by counter, so the seed is all of their state), configuration
/// and tokenizer.
void save_training(const RunConfig& config, const ParameterStore& store,
                   const TrainingPosition& position, const TrainingData& data);

/// Removes old checkpoints by the keep rule; throws Error when one cannot be removed.
void prune_training(const RunConfig& config);

/// Whether the run has saved anything, complete or damaged. What a killed save left half-written
/// does not count.
bool holds_checkpoints(const RunConfig& config);

/// Removes what a killed save left behind, and loads the run's newest complete checkpoint into the
/// store; one that turns out to be damaged is warned of and the one before it taken. Throws Error
/// when none is left, when a key that must stay (the model, the batches, the seed) is not what it
/// was saved with, naming it, and as restored_state() does. Every other key that is not what it was
/// saved with is warned of, and checkpoint.initial, which has no effect any more, becomes what it
/// was saved with.
TrainingPosition load_training(RunConfig& config, const ParameterStore& store,
                               const TrainingData& data, const Logger& logger);

/// The model of the run in run.directory, as its checkpoints say: what a run that is resumed starts
/// the keys of [model] from where it began with another checkpoint's weights, which may be gone by
/// now. Throws Error when the run holds no complete checkpoint.
ModelConfig resumed_model(const RunConfig& named);

/// runs/NAME/checkpoints.
fs::path checkpoints_directory(const RunConfig& config);

}  // namespace tessera
