#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/contradictions.h"
#include "config/run_config.h"

namespace tessera {

/// Returns the [[data.sources]] that a phase draws from, in the order of that list and with the
/// phase's weights. A phase that names no source draws from all of them. The result is empty if the
/// run has data.directory instead. Unknown names are skipped: check_phase_sources() reports them.
std::vector<SourceConfig> sources_of_phase(const RunConfig& config, size_t phase);

/// Adds the problems of the phases' sources to `found`: names that do not exist, weights that are
/// not valid, sources that no phase draws from.
void check_phase_sources(const RunConfig& config, Contradictions& found);

}  // namespace tessera
