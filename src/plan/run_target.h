#pragma once

#include <memory>

#include "config/run_config.h"
#include "device/accelerator.h"
#include "hardware/accelerator_facts.h"
#include "program/target.h"

namespace tessera {

/// Opens the device of a run for one of the machine's ranks. Returns null if the run computes on
/// the processor. Throws Error if the device cannot be opened.
std::unique_ptr<Accelerator> open_device(const RunConfig& config, const LocalRank& rank = {});

/// Returns the target of a run on an accelerator that need not be here.
Target run_target(const RunConfig& config, const AcceleratorFacts& facts);

/// Returns the target of a run on this machine: the configured device beside the processor, whose
/// threads the `ranks` ranks share equally, each with one at least. `accelerator` is the device if
/// it is open; otherwise the target has none of the facts that only the device reports.
Target run_target(const RunConfig& config, const Accelerator* accelerator = nullptr, int ranks = 1);

}  // namespace tessera
