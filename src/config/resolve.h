#pragma once

#include "config/run_config.h"

namespace tessera {

/// Fills in the values that depend on the data: model.vocabulary_size from the data's tokenizer,
/// and the names of [[data.sources]] from their paths. Throws Error when the size is left out and
/// the data is missing, or when a given size is smaller than the tokenizer's.
RunConfig resolve_data(RunConfig config);

/// Fills in what resolve_data() does, and run.threads from this machine's cores. Throws Error if
/// run.threads is more than this process may start.
RunConfig resolve(RunConfig config);

}  // namespace tessera
