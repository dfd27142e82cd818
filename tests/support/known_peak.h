#pragma once

#include "base/file.h"
#include "hardware/hardware_file.h"

namespace tessera::testing {

/// Writes a hardware file with some rate of fp64's products on one thread, for run.hardware. A run
/// that measures the rate takes a second for it.
inline void write_known_peak(const fs::path& file) {
  Hardware hardware{this_processor(1), {}, {}};
  hardware.gemms = {{.dtype = DType::f64, .m = 1024, .n = 1024, .k = 1024, .best = 1e9}};
  hardware.gemms[0].median = 1e9;
  write_file(file, hardware_json(hardware));
}

}  // namespace tessera::testing
