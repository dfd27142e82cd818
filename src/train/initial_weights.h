#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
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

/// The folder in a run's folder with files of the initial checkpoint that its checkpoints go on
/// carrying.
inline constexpr std::string_view kCarriedName = "carried";

/// Copies the files that the initial checkpoint carries (the tokenizer's, config.json) into the
/// run's folder when the run starts: what it exports is then complete. Where its data has another
/// tokenizer they would be wrong, and none is copied; nor are any without an initial checkpoint.
void prepare_carried_files(const RunConfig& config, const DataTokenizer& tokenizer,
                           const Logger& logger);

/// Adds the files that prepare_carried_files() left in the run's folder, but for those of whose
/// name `files` has one already.
void add_carried_files(const RunConfig& config, std::vector<fs::path>& files);

}  // namespace tessera
