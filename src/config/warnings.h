#pragma once

#include <string>
#include <vector>

#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

/// Returns sentences that a user should read before a run on a mesh: those of without_effect(), one
/// if there are steps that learn nothing, and one for each number of micro-batches of a phase that
/// asks for another schedule with what is sharded (Llama 3 §3.1.3).
std::vector<std::string> config_warnings(const RunConfig& config, const Mesh& mesh);

}  // namespace tessera
