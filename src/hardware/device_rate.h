#pragma once

#include <cstdint>
#include <vector>

#include "hardware/device_timer.h"
#include "hardware/gemm_rate.h"
#include "hardware/memory_rate.h"
#include "program/runtime.h"

namespace tessera {

/// Measures rates of a runtime's accelerator. Nothing else must run on it.
class DeviceRates {
 public:
  /// Refers to the runtime, which must have an accelerator.
  explicit DeviceRates(Runtime& runtime);

  /// Measures a matrix product of random normal numbers, computed as the operations of a step
  /// compute it.
  GemmRate gemm(const GemmRate& product, const GemmBudget& budget);
  /// Measures plain squares that are large enough for the device's peak, or small ones on the
  /// emulated device.
  std::vector<GemmRate> squares(DType dtype);
  /// Returns whether its library multiplies matrices of that dtype. Throws Error if that could not
  /// be tried.
  bool has_gemm(DType dtype);

  /// Measures copies within the device's memory. `bytes` are those of source and destination
  /// together. The rate counts what is read and what is written.
  MemoryRate copy(int64_t bytes, double seconds);

 private:
  Runtime& runtime_;
  DeviceTimer timer_;
};

/// Returns the working sets of which copies are measured where none are given: from 4 MiB to 4 GiB,
/// but at most half of `free`; small ones on the emulated device.
std::vector<int64_t> device_copy_sizes(Device device, int64_t free);

/// Measures the peak of matrix products of a runtime's accelerator.
double measure_gemm_peak(Runtime& runtime, DType dtype);

}  // namespace tessera
