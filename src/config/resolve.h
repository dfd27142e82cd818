#pragma once

#include "config/run_config.h"

namespace tessera {

/// Returns the configuration with the values that it leaves to its data: model.vocabulary_size from
/// the data's tokenizer, and the names of [[data.sources]] from their paths. Throws Error when the
/// size is needed and the data is missing, or when a given size is smaller than the tokenizer's.
RunConfig resolve_data(RunConfig config);

/// Returns the configuration of a run on this machine: as resolve_data() does, and with run.threads
/// filled in. Throws Error if run.threads is more than this process may start.
RunConfig resolve(RunConfig config);

}  // namespace tessera
