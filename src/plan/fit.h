#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "config/run_config.h"
#include "hardware/hardware_file.h"
#include "plan/step_plan.h"

namespace tessera {

/// The memory and time that a configuration takes on an accelerator that need not be here. Nothing
/// is measured and nothing runs: memory is the plan's, times are floors.
struct Fit {
  AcceleratorFacts accelerator;
  int64_t needed_bytes = 0;  ///< of the configuration as it is
  /// The largest number of sequences in a micro-batch that fits and divides the part of the global
  /// batch that one data-parallel rank gets; 0 if not even the smallest one fits.
  int64_t largest_micro_batch = 0;
  /// The smallest micro-batch for which there is a schedule: 1, unless the schedule is in a file.
  int64_t least_micro_batch = 1;
  int64_t least_bytes = 0;  ///< needed with that micro-batch
  int64_t state_bytes = 0;  ///< of weights, gradients and the optimizer's states
  int ranks = 1;            ///< of the run; all numbers are one rank's, except `tokens`
  bool measured = false;    ///< true if the ceilings were measured, not taken from a data sheet

  double gemm_flops = 0;        ///< ceiling of matrix products per second
  double memory_bandwidth = 0;  ///< ceiling in bytes per second
  double compute_seconds = 0;   ///< of a step: floors of operations that products limit
  double memory_seconds = 0;    ///< of a step: floors of operations that bytes limit
  double useful_flops = 0;      ///< of a step
  int64_t tokens = 0;           ///< of a step

  /// Returns the memory that a plan may take: all but kDeviceReserve.
  int64_t usable_bytes() const { return accelerator.memory_bytes.value - kDeviceReserve; }
  bool fits() const { return needed_bytes <= usable_bytes(); }
  /// Returns the least seconds of a step by the roofline. An operation takes as long as its
  /// products take at the peak, or as its bytes take at the bandwidth, whichever is longer.
  double seconds() const { return compute_seconds + memory_seconds; }
  /// Returns the highest MFU that is possible in that time.
  double mfu() const { return useful_flops / seconds() / gemm_flops; }
};

/// Returns the memory and time that a resolved configuration takes on the accelerator of a hardware
/// file, which must have one. `plan` is the configuration's plan for it (see plan_step() and
/// run_target()). Throws Error if the file has no peak of the configuration's products (see
/// product_peak()), or no bandwidth.
Fit fit_on(const RunConfig& config, const StepPlan& plan, const Hardware& hardware);

/// Returns the fit as lines for a terminal. They say which figures were not measured and, if it
/// does not fit, what to change.
std::string fit_text(const Fit& fit, const RunConfig& config);
/// Returns the fit as an object.
nlohmann::ordered_json fit_json(const Fit& fit);

}  // namespace tessera
