#pragma once

#include <string>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "config/run_config.h"
#include "data/loader.h"
#include "state/parameter_store.h"

namespace tessera {

/// Where training stands beside its tensors.
struct TrainingPosition {
  int64_t step = 0;    ///< optimizer steps done
  int64_t tokens = 0;  ///< trained on so far
  LoaderState data;    ///< of the next batch
};

/// Saves everything that the run needs to go on bit for bit: master weights, moments, data
/// position, seed (random numbers are by counter, so the seed is all of their state), configuration
/// and tokenizer. Then removes old checkpoints by the keep rule.
void save_training(const RunConfig& config, const ParameterStore& store,
                   const TrainingPosition& position, const Manifest& data);

/// Loads the run's newest complete checkpoint into the store; broken newer ones are warned of.
/// Throws Error when there is none, or when the data or the seed is not what it was saved with.
TrainingPosition load_training(const RunConfig& config, const ParameterStore& store,
                               const Manifest& data, const Logger& logger);

/// runs/NAME/checkpoints.
fs::path checkpoints_directory(const RunConfig& config);

}  // namespace tessera
