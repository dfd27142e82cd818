#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "config/phases.h"
#include "plan/step_plan.h"

namespace tessera {

/// The needs of a step of a phase, planned as if the phase were the whole run.
struct PhaseNeeds {
  double step_flops = 0;     ///< FlopCount::useful() of this rank
  int64_t memory_bytes = 0;  ///< of this rank
  /// The least seconds of a step on the accelerator of a hardware file (see Fit).
  std::optional<double> least_seconds = {};
};

/// Returns the needs of the phase that `plan` is for, without the time.
PhaseNeeds phase_needs(const StepPlan& plan);

/// A phase of the run and its needs.
struct PhaseAccount {
  RunPhase phase;
  PhaseNeeds needs;
};

/// Returns the accounts of all phases. `needs_of` returns the needs of a phase's configuration. It
/// is called once for all phases whose steps are the same work.
std::vector<PhaseAccount> phase_accounts(
    const RunConfig& config, const std::function<PhaseNeeds(const RunConfig&)>& needs_of);

/// Returns a table of the phases: steps, tokens, contexts, batches, RoPE bases, learning rates,
/// sources, FLOPs and memory. `run_bytes` are the bytes that the run reserves for all phases.
std::string phases_table(std::span<const PhaseAccount> accounts, int64_t run_bytes);

/// Returns the accounts as an array.
nlohmann::ordered_json phases_json(std::span<const PhaseAccount> accounts);

}  // namespace tessera
