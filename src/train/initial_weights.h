#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "config/run_config.h"
#include "data/sources/open_data.h"
#include "state/parameter_store.h"
#include "train/save_state.h"

namespace tessera {

/// Returns the model of the checkpoint that checkpoint.initial names: a run's folder, the folder of
/// its checkpoints, or one checkpoint. Throws Error if there is no checkpoint.
ModelConfig initial_model(const RunConfig& named);

/// Fills the store with the weights of checkpoint.initial; the moments stay zero. All ranks call
/// it, and each gets the pieces that it holds. The checkpoint must hold every parameter with its
/// shape. Throws Error, which lists the keys of [model] that differ and change the meaning of the
/// weights. Only warns if the rotary embedding differs, as in training for a longer context.
void load_initial_weights(const RunConfig& config, const ParameterStore& store,
                          const Logger& logger, const StateRanks& ranks);

/// Returns the files that the checkpoints of a new run carry: the tokenizer of its data, and the
/// other files of the initial checkpoint (config.json), with which exports are complete. They are
/// left out if the data has another tokenizer, because they would be wrong.
std::vector<CarriedFile> initial_files(const RunConfig& config, const DataTokenizer& tokenizer,
                                       const Logger& logger);

}  // namespace tessera
