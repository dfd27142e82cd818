#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

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
  std::string accelerator = {};                   ///< the device's name, unless it is the processor
  std::optional<ProductPeak> hardware_peak = {};  ///< from the file that run.hardware names
};

/// Returns the conditions, for which it measures the peak of matrix products on the processor or
/// the runtime's accelerator. `bind_threads` says whether the threads of the reported measurement
/// were bound to cores (see BoundTeam): the peak is measured likewise. Call it after the measured
/// runs, because its matrices would count towards their peak memory. Throws Error if an
/// InterruptGuard has caught a signal.
MeasuredOn measured_on(Precision precision, Runtime& runtime, bool bind_threads = true);

/// Returns the conditions as an object: "precision", "gemm_peak", "processor"; for an accelerator
/// "device" and "accelerator"; a "note" if it is emulated; "hardware_peak" if there is one.
nlohmann::ordered_json measured_on_json(const MeasuredOn& on);

/// Returns describe(Processor), after the accelerator's name if there is one. For an emulated
/// device adds that its figures mean nothing.
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

/// One measured mixture-of-experts layer.
struct MixtureReport {
  MixtureBlockSizes sizes;
  BlockProgram block;
  BlockMeasurement measurement;
  /// The measurement with a balanced load, if `sizes` has a skew.
  std::optional<BlockMeasurement> balanced;
  MeasuredOn on;

  std::string text() const;
  std::string json() const;  ///< one object on one line
  /// Draws the seconds of each run as SVG, for the forward pass and for both passes.
  std::string picture() const;
};

/// Attention measured over sequences of several lengths.
struct AttentionReport {
  struct Length {
    AttentionBlockSizes sizes;
    BlockProgram block;
    BlockMeasurement measurement;
  };
  std::vector<Length> lengths;  ///< ascending; at least one for picture()
  MeasuredOn on;

  std::string text() const;
  std::string json() const;     ///< one object per length, each on a line
  std::string picture() const;  ///< SVG
};

/// Draws the rates of attention over the sequence length as SVG: one line for the forward pass and
/// one for both passes. `rates` has the lengths, ascending, and `sizes` all sizes but the length.
std::string attention_picture(const AttentionBlockSizes& sizes,
                              std::span<const std::pair<int64_t, PassRates>> rates,
                              const MeasuredOn& on);

}  // namespace tessera
