#pragma once

#include <optional>
#include <string>

#include "config/run_config.h"
#include "device/accelerator.h"
#include "hardware/hardware_file.h"

namespace tessera {

/// Returns whether a run's f32 products round their operands to TF32 on a device.
bool rounds_to_tf32(const RunConfig& config, Device device);

/// A rate of matrix products that MFU refers to.
struct ProductPeak {
  double flops = 0;    ///< per second
  std::string source;  ///< "the data sheet in FILE", "measured, in FILE"
};

/// Returns a file's rate of the products of a run, in FLOP/s: that of TF32 if they round to it.
/// Throws Error if the file does not have it.
double product_peak(const Hardware& hardware, const RunConfig& config);

/// Returns the rate in the file that run.hardware names; none if it names none. `accelerator` is
/// the run's device, or null. Throws Error if the file is about another machine.
std::optional<ProductPeak> configured_peak(const RunConfig& config, const Accelerator* accelerator);

}  // namespace tessera
