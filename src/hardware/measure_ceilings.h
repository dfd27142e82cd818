#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "device/device.h"
#include "hardware/gemm_sweep.h"
#include "hardware/hardware_file.h"

namespace tessera {

/// The working sets to measure.
struct MemorySweep {
  /// If empty, the sizes are chosen: for a processor by memory_sweep_sizes(), for a device by
  /// device_copy_sizes().
  std::vector<int64_t> bytes;
  double seconds = 0.1;  ///< about how long each loop of a size is measured
};

/// The measurements to make on this machine.
struct CeilingOptions {
  int threads = 0;                ///< 0: all usable cores
  Device device = Device::cpu;    ///< the device whose products and copies are measured
  std::optional<GemmSweep> gemm;  ///< without dtypes: bf16 and f32, if the device has them
  std::optional<MemorySweep> memory;
};

/// The results of the measurements on this machine.
struct MeasuredCeilings {
  Hardware hardware;
  std::optional<GemmSweep> gemm;  ///< with the types that were measured

  /// Returns a description of the machine and a table of each kind of measurement.
  std::string text() const;
  /// Returns a picture (SVG): of the matrix products if they were measured, else of the memory.
  std::string picture() const;
};

/// Measures matrix products, memory or both, with a line of progress. Of a device's memory only
/// copies are measured, by the device's events. `logger` reports what is left out. Throws Error if
/// a size does not fit the memory, if all products would take too long or none can be computed, or
/// if an InterruptGuard has caught a signal.
MeasuredCeilings measure_ceilings(const CeilingOptions& options, const Logger& logger);

}  // namespace tessera
