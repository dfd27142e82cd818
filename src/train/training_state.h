#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "config/run_config.h"
#include "data/loader.h"
#include "state/parameter_store.h"
#include "train/run_data.h"
#include "train/state_tensor.h"

namespace tessera {

/// Where training stands, apart from its tensors.
struct TrainingPosition {
  int64_t step = 0;    ///< optimizer steps done
  int64_t tokens = 0;  ///< trained on so far
  /// Forward passes of training so far, each of a micro-batch of all ranks.
  int64_t micro_batches = 0;
  LoaderState data;  ///< position of the next batch
  /// The files that its checkpoints carry. They are in memory from the run's start: a file that is
  /// damaged or removed later does not keep the run from saving.
  std::vector<CarriedFile> carried;
  /// Lines of metrics.jsonl up to the step that could not be brought to the disk (see MetricsFile).
  std::string unsaved_metrics;
};

/// Saves everything that the run needs to continue bit for bit: master weights, moments, data
/// position, seed, configuration and tokenizer. Random numbers are by counter, so the seed is their
/// whole state. Every rank calls it, and writes its share (see save_state()).
void save_training(const RunConfig& config, const ParameterStore& store,
                   const TrainingPosition& position, const RunData& data, const StateRanks& ranks);

/// Removes old checkpoints by the keep rule. Throws Error when one cannot be removed.
void prune_training(const RunConfig& config);

/// Throws Error unless a new run can begin in run.directory: it holds neither the checkpoints of a
/// run, complete or damaged, nor a model that `checkpoint import` wrote. What a killed save left
/// half-written does not count.
void require_fresh(const RunConfig& config);

/// Removes what a killed save left behind and loads the run's newest complete checkpoint into the
/// store. Every rank calls it and gets its pieces (see load_state()). If a checkpoint turns out to
/// be damaged, warns and takes the one before it. Throws Error when none is left, and as
/// restored_state() does. Throws Error that names the key when a key that must stay (the model, the
/// batches, the seed) differs from the checkpoint's, and as require_same_token_sets() does. Other
/// keys that differ are logged; run.directory is not. So for phases: see require_same_phases().
/// checkpoint.initial no longer has an effect and gets the checkpoint's value.
TrainingPosition load_training(RunConfig& config, const ParameterStore& store, const RunData& data,
                               const Logger& logger, const StateRanks& ranks);

/// Returns the model of the run in run.directory as its checkpoints record it. The keys of [model]
/// of a resumed run start from it. This matters if the run began with another checkpoint's weights,
/// which may be gone by now. Throws Error when the run holds no complete checkpoint.
ModelConfig resumed_model(const RunConfig& named);

/// Returns runs/NAME/checkpoints.
fs::path checkpoints_directory(const RunConfig& config);

}  // namespace tessera
