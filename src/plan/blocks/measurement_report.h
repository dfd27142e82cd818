#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "hardware/processor.h"
#include "plan/blocks/block_measurement.h"
#include "plan/blocks/layer_blocks.h"
#include "plan/product_peak.h"

namespace tessera {

/// The conditions that every report of a measurement states.
struct MeasuredOn {
  Processor processor;
  Precision precision = Precision::bf16;
  double gemm_peak = 0;  ///< the best rate of a square matrix product, in FLOP/s
  Device device = Device::cpu;
  std::string accelerator = {};                   ///< its name, if the device is not the processor
  std::optional<ProductPeak> hardware_peak = {};  ///< that of run.hardware, if it names a file
};

/// Measures the peak of matrix products in that precision, of the processor or of the runtime's
/// accelerator. Binds the threads to cores (see BoundTeam) if those of the reported measurement
/// were bound. Call it after the measured runs: its matrices would otherwise count towards their
/// peak memory. Throws Error if an InterruptGuard has caught a signal.
MeasuredOn measured_on(Precision precision, Runtime& runtime, bool bind_threads = true);

/// Returns an object with "precision", "gemm_peak" and "processor"; for an accelerator also
/// "device" and "accelerator", and a "note" if it is emulated; and "hardware_peak" if there is one.
nlohmann::ordered_json measured_on_json(const MeasuredOn& on);

/// Returns a text such as describe(Processor), with the accelerator first if there is one. It says
/// that the figures of an emulated device mean nothing.
std::string describe(const MeasuredOn& on);

/// Returns the MFU of a rate of useful FLOP/s: "41.0 % of 800.0 GFLOP/s (bf16, measured now)". The
/// MFU against the hardware file's peak follows if there is one.
std::string mfu_text(double flops, const MeasuredOn& on);
/// Returns the MFU as "mfu", against the measured peak, and "mfu_of_hardware_peak".
nlohmann::ordered_json mfu_json(double flops, const MeasuredOn& on);

/// Returns "12.3 ms (12.1-13.0)": the median, and the 10th and 90th percentiles.
std::string median_and_spread(std::span<const double> seconds);

/// The FLOP/s of the matrix products in the median run.
struct PassRates {
  double forward = 0;
  double forward_backward = 0;
};
PassRates pass_rates(const BlockProgram& block, const BlockMeasurement& measurement);

// Each function returns one measurement, as a JSON object on one line or as lines of text.
// `balanced` is the measurement of the same layer with a balanced load, or null.

std::string mixture_json(const MixtureBlockSizes& sizes, const BlockProgram& block,
                         const BlockMeasurement& measurement, const MeasuredOn& on,
                         const BlockMeasurement* balanced = nullptr);
std::string mixture_text(const MixtureBlockSizes& sizes, const BlockProgram& block,
                         const BlockMeasurement& measurement, const MeasuredOn& on,
                         const BlockMeasurement* balanced = nullptr);
std::string attention_json(const AttentionBlockSizes& sizes, const BlockProgram& block,
                           const BlockMeasurement& measurement, const MeasuredOn& on);
std::string attention_text(const AttentionBlockSizes& sizes, const BlockProgram& block,
                           const BlockMeasurement& measurement, const MeasuredOn& on);

// Measurements as SVG documents (block_picture.cpp).

/// Draws the seconds of each run: one line for the forward pass and one for both passes.
std::string mixture_picture(const MixtureBlockSizes& sizes, const BlockMeasurement& measurement,
                            const MeasuredOn& on);

/// Draws the rates of attention over the sequence length, in ascending order: one line for the
/// forward pass and one for both passes. `sizes` are those that all lengths have in common.
std::string attention_picture(const AttentionBlockSizes& sizes,
                              std::span<const std::pair<int64_t, PassRates>> rates,
                              const MeasuredOn& on);

}  // namespace tessera
