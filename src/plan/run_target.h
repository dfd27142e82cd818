#pragma once

#include <memory>

#include "config/run_config.h"
#include "device/accelerator.h"
#include "hardware/accelerator_facts.h"
#include "program/target.h"

namespace tessera {

/// Opens the device of a run for one of the machine's ranks; null if it computes on the processor.
/// Throws Error if it cannot.
std::unique_ptr<Accelerator> open_device(const RunConfig& config, const DevicePlace& place = {});

/// The target of a run on an accelerator that need not be here.
Target run_target(const RunConfig& config, const AcceleratorFacts& facts);

/// The target of a run on this machine: its processor with the configured threads, and the
/// configured device. If that is open, it is `accelerator`. Otherwise nothing is known of it. Of
/// several ranks each has the same share of the threads, at least one.
Target run_target(const RunConfig& config, const Accelerator* accelerator = nullptr, int ranks = 1);

}  // namespace tessera
