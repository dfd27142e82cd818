#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "config/run_config.h"
#include "data/sources/open_data.h"
#include "state/parameter_store.h"

namespace tessera {

/// The model of the checkpoint that checkpoint.initial names: a run's folder, its checkpoints or
/// one checkpoint. Throws Error when there is none.
ModelConfig initial_model(const RunConfig& named);

/// Fills the store with the weights of checkpoint.initial; moments stay zero. Every parameter must
/// be there with its shape. Throws Error listing the keys of [model] that change what the weights
/// mean; warns where the rotary embedding is another, as in training for a longer context. Keys of
/// losses and of initialization may differ.
void load_initial_weights(const RunConfig& config, const ParameterStore& store,
                          const Logger& logger);

/// What the checkpoints of a run carry that starts: the tokenizer of its data, and what the initial
/// checkpoint carries beside it (config.json), so that what it exports is complete. Where its data
/// has another tokenizer than the initial checkpoint, the latter's files would be wrong, and are
/// left behind.
std::vector<CarriedFile> initial_files(const RunConfig& config, const DataTokenizer& tokenizer,
                                       const Logger& logger);

}  // namespace tessera
