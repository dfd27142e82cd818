#pragma once

#include "hardware/hardware_file.h"
#include "support/known_peak.h"

namespace tessera::testing {

/// Writes a hardware file of this processor with low rates: products take as long as calls of other
/// ranks, so that it matters what runs beside what.
inline void write_slow_hardware(const fs::path& file, int threads = 1) {
  write_known_peak(file, threads);
  Hardware hardware = read_hardware(file);
  hardware.memory = {{MemoryKernel::update, 1 << 30, 1e9, 1e9}};
  for (const Collective collective : kMeasuredCollectives) {
    hardware.collectives.push_back({.collective = collective,
                                    .ranks = {RankKind::processes, 2, 1},
                                    .bytes = 4 << 10,
                                    .best_seconds = 2e-4,
                                    .median_seconds = 2e-4});
  }
  write_file(file, hardware_json(hardware));
}

}  // namespace tessera::testing
