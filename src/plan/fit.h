#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "config/run_config.h"
#include "hardware/hardware_file.h"
#include "plan/step_plan.h"

namespace tessera {

/// What a configuration takes of an accelerator that need not be here. Nothing is measured and
/// nothing runs: memory is the plan's, times are floors.
struct Fit {
  AcceleratorFacts accelerator;
  int64_t needed_bytes = 0;  ///< of the configuration as it is
  /// The largest number of sequences at once, a divisor of the global batch, that fits; 0 if not
  /// even one does.
  int64_t largest_micro_batch = 0;
  int64_t least_bytes = 0;  ///< with one sequence at once
  int64_t state_bytes = 0;  ///< weights, gradients and the optimizer's states
  int ranks = 1;            ///< of the run; all numbers are of one rank but those of tokens
  bool measured = false;    ///< whether the ceilings were measured, and not taken from a data sheet

  double gemm_flops = 0;        ///< ceiling of matrix products per second
  double memory_bandwidth = 0;  ///< ceiling in bytes per second
  double compute_seconds = 0;   ///< of a step, the sum of the floors of what the products limit
  double memory_seconds = 0;    ///< of what the bandwidth limits
  double useful_flops = 0;      ///< of a step
  int64_t tokens = 0;           ///< of a step

  /// The memory that a plan may take: all but kDeviceReserve.
  int64_t usable_bytes() const { return accelerator.memory_bytes.value - kDeviceReserve; }
  bool fits() const { return needed_bytes <= usable_bytes(); }
  /// The least seconds of a step by the roofline: each operation takes as long as its products at
  /// the peak or as its bytes at the bandwidth, whichever is more.
  double seconds() const { return compute_seconds + memory_seconds; }
  /// The most MFU that this leaves.
  double mfu() const { return useful_flops / seconds() / gemm_flops; }
};

/// Returns what a resolved configuration takes of the accelerator of a hardware file. `plan` is the
/// configuration's plan for it (see plan_step() and run_target()). Throws Error if the file has no
/// peak of the configuration's products (see product_peak()), or no bandwidth.
Fit fit_on(const RunConfig& config, const StepPlan& plan, const Hardware& hardware);

/// Returns it as lines for a terminal, which say what was not measured and, if it does not fit,
/// what to change.
std::string fit_text(const Fit& fit, const RunConfig& config);
nlohmann::ordered_json fit_json(const Fit& fit);

}  // namespace tessera
