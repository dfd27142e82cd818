#pragma once

#include <optional>
#include <string>

#include "config/run_config.h"
#include "device/accelerator.h"
#include "hardware/hardware_file.h"

namespace tessera {

/// Returns whether a run's matrix products are of f32 and round their operands to TF32 on a device.
bool rounds_to_tf32(const RunConfig& config, Device device);

/// The rate of matrix products to which MFU refers.
struct ProductPeak {
  double flops = 0;    ///< per second
  std::string source;  ///< "the data sheet in FILE", "measured, in FILE"
};

/// Returns the rate of a run's matrix products, in FLOP/s. Throws Error if the file lacks it.
double product_peak(const Hardware& hardware, const RunConfig& config);

/// Returns the rate from the file that run.hardware names; none if it names no file. `accelerator`
/// is the run's device, or null. Throws Error if the file is about another machine.
std::optional<ProductPeak> configured_peak(const RunConfig& config, const Accelerator* accelerator);

}  // namespace tessera
