#pragma once

#include "base/contradictions.h"
#include "model/model_config.h"

namespace tessera {

/// Adds to `found` everything that validate() would refuse.
void find_contradictions(const ModelConfig& config, Contradictions& found);

}  // namespace tessera
