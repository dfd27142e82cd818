#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/contradictions.h"
#include "config/run_config.h"

namespace tessera {

/// Returns the [[data.sources]] that a phase draws from, in their order and with the phase's
/// weights. All of the run's if the phase names none; none if the run has data.directory. What is
/// not the name of a source is left out.
std::vector<SourceConfig> sources_of_phase(const RunConfig& config, size_t phase);

/// What is wrong with the phases' sources: names that do not exist, weights that are none, sources
/// of which no phase draws.
void check_phase_sources(const RunConfig& config, Contradictions& found);

}  // namespace tessera
