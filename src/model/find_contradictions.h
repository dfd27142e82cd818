#pragma once

#include "base/contradictions.h"
#include "model/model_config.h"

namespace tessera {

/// Adds what validate() would refuse, all of it.
void find_contradictions(const ModelConfig& config, Contradictions& found);

}  // namespace tessera
