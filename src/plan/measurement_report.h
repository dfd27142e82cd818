#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "hardware/processor.h"
#include "plan/block_measurement.h"
#include "plan/layer_blocks.h"

namespace tessera {

/// What every report of a measurement says about its surroundings.
struct MeasuredOn {
  Processor processor;
  Precision precision = Precision::bf16;
  double gemm_peak = 0;  ///< the best rate of a square matrix product, floating-point ops a second
};

/// Measures the peak of matrix products in that precision, with the threads bound to cores (see
/// BoundTeam) as those of what was measured. Called when the measured runs have ended, whose peak
/// memory its matrices would be part of. Throws Error when a signal has come that an InterruptGuard
/// caught.
MeasuredOn measured_on(Precision precision, int threads, bool bind_threads = true);

/// "precision", "gemm_peak" and "processor".
nlohmann::ordered_json measured_on_json(const MeasuredOn& on);

/// "12.3 ms (12.1-13.0)": the median, and the 10th and the 90th percentile.
std::string median_and_spread(std::span<const double> seconds);

/// Floating-point operations a second of the median run's matrix products.
struct PassRates {
  double forward = 0;
  double forward_backward = 0;
};
PassRates pass_rates(const BlockProgram& block, const BlockMeasurement& measurement);

// One measurement as a JSON object on one line, and as lines of text.

std::string mixture_json(const MixtureBlockSizes& sizes, const BlockProgram& block,
                         const BlockMeasurement& measurement, const MeasuredOn& on);
std::string mixture_text(const MixtureBlockSizes& sizes, const BlockProgram& block,
                         const BlockMeasurement& measurement, const MeasuredOn& on);
std::string attention_json(const AttentionBlockSizes& sizes, const BlockProgram& block,
                           const BlockMeasurement& measurement, const MeasuredOn& on);
std::string attention_text(const AttentionBlockSizes& sizes, const BlockProgram& block,
                           const BlockMeasurement& measurement, const MeasuredOn& on);

}  // namespace tessera
