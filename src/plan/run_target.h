#pragma once

#include "config/run_config.h"
#include "program/target.h"

namespace tessera {

/// The target of a run on this machine: its processor with the configured threads, and the
/// configured device.
Target run_target(const RunConfig& config);

}  // namespace tessera
