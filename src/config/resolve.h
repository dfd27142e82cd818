#pragma once

#include "config/run_config.h"

namespace tessera {

/// Fills in what a configuration leaves to its surroundings: model.vocabulary_size from the data's
/// tokenizer, the names of [[data.sources]] from their paths, run.threads from the machine. Throws
/// Error when the data is not there and the size is needed, or when a given size is smaller than
/// the tokenizer's.
RunConfig resolve(RunConfig config);

}  // namespace tessera
