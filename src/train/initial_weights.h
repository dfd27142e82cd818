#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "config/run_config.h"
#include "data/sources/open_data.h"
#include "state/parameter_store.h"
#include "train/state_tensor.h"

namespace tessera {

/// Returns the model of the checkpoint that checkpoint.initial names. It may name a run's folder,
/// the run's checkpoints or one checkpoint. Throws Error when there is no checkpoint.
ModelConfig initial_model(const RunConfig& named);

/// Fills the store with the weights of checkpoint.initial. Every rank calls it and gets its pieces.
/// The moments stay zero. The checkpoint must hold every parameter with its shape. Throws Error
/// that lists the keys of [model] that change what the weights mean. Warns if the rotary embedding
/// differs, as in training for a longer context. Keys that only concern training may differ, such
/// as those of losses and initialization.
void load_initial_weights(const RunConfig& config, const ParameterStore& store,
                          const Logger& logger, const StateRanks& ranks);

/// Returns the files that the checkpoints of a new run carry: the tokenizer of its data, and the
/// other files that the initial checkpoint carries (config.json), which make its exports complete.
/// If the data has another tokenizer than the initial checkpoint, the files of that checkpoint
/// would be wrong and are left behind.
std::vector<CarriedFile> initial_files(const RunConfig& config, const DataTokenizer& tokenizer,
                                       const Logger& logger);

}  // namespace tessera
