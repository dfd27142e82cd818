#pragma once

#include "base/file.h"
#include "hardware/hardware_file.h"

namespace tessera::testing {

/// Writes a hardware file, for run.hardware, with some rate of the matrix products of every type on
/// that many threads. A run that measures the rate takes a second for it.
/// Of an accelerator it is the device's rate.
inline void write_known_peak(const fs::path& file, int threads = 1,
                             const Accelerator* accelerator = nullptr) {
  Hardware hardware{this_processor(threads), {}, {}};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    hardware.gemms.push_back({.dtype = dtype, .m = 1024, .n = 1024, .k = 1024, .best = 1e9});
    hardware.gemms.back().median = 1e9;
  }
  if (accelerator != nullptr) hardware.accelerator = facts_of(*accelerator);
  write_file(file, hardware_json(hardware));
}

}  // namespace tessera::testing
