#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "config/phases.h"
#include "plan/step_plan.h"

namespace tessera {

/// What a phase of a run takes, planned as if it were all of the run.
struct PhaseAccount {
  RunPhase phase;
  double step_flops = 0;     ///< useful ones, of this rank
  int64_t memory_bytes = 0;  ///< of this rank
  /// The least seconds of a step on the accelerator of a hardware file (see Fit).
  std::optional<double> least_seconds = {};
};

/// Returns the accounts of all phases, without times. `plan` returns the plan of a configuration.
template <typename Plan>
std::vector<PhaseAccount> phase_accounts(const RunConfig& config, const Plan& plan) {
  std::vector<PhaseAccount> accounts;
  for (const RunPhase& phase : phases_of(config)) {
    const StepPlan alone = plan(phase.config);
    accounts.push_back(
        {.phase = phase,
         .step_flops = alone.flops.useful() * static_cast<double>(alone.micro_batches),
         .memory_bytes = alone.memory.arena_bytes});
  }
  return accounts;
}

/// Returns a table of the phases: their steps, tokens, contexts, batches, RoPE bases, learning
/// rates and sources, and what each takes. `run_bytes` is what the run reserves for all of them.
std::string phases_table(std::span<const PhaseAccount> accounts, int64_t run_bytes);

/// The same as an array.
nlohmann::ordered_json phases_json(std::span<const PhaseAccount> accounts);

}  // namespace tessera
