#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/event_pair.h"
#include "hardware/gemm_rate.h"
#include "hardware/memory_rate.h"
#include "program/runtime.h"

namespace tessera {

// The rates of an accelerator: matrix products, and copies within its memory.

/// Times work by an accelerator's own events, on a stream that nothing else uses.
class DeviceTimer {
 public:
  explicit DeviceTimer(Accelerator& accelerator);

  Accelerator& accelerator() const { return accelerator_; }

  /// Returns the seconds of one run of `work`, one number for each sample. Each call of `work` puts
  /// one run into the stream that it is given. The first run is no sample, because it may make
  /// plans. Short work runs several times in a sample, so that a sample takes a millisecond or
  /// more. A signal that an InterruptGuard caught ends the samples early.
  std::vector<double> samples(const std::function<void(Stream&)>& work, const GemmBudget& budget);

 private:
  /// Returns the seconds of `runs` runs.
  double seconds(const std::function<void(Stream&)>& work, int64_t runs);

  Accelerator& accelerator_;
  std::shared_ptr<Stream> stream_;
  EventPair events_;
};

/// Measures rates of a runtime's accelerator. Nothing else may run there meanwhile.
class DeviceRates {
 public:
  /// Refers to the runtime, which must have an accelerator.
  explicit DeviceRates(Runtime& runtime);

  /// Measures a matrix product of random normal numbers, computed as in a training step.
  GemmRate measure_gemm(const GemmRate& product, const GemmBudget& budget);
  /// Measures plain squares that are large enough for the device's peak, or small ones on the
  /// emulated device.
  std::vector<GemmRate> measure_squares(DType dtype);
  /// Returns whether the device's library multiplies matrices of that dtype. Throws Error if a
  /// product could not be tried.
  bool has_gemm(DType dtype);

  /// Measures copies within the device's memory. Source and destination have `bytes` bytes
  /// together. The rate counts the bytes that are read and those that are written.
  MemoryRate measure_copy(int64_t bytes, double seconds);

 private:
  Runtime& runtime_;
  DeviceTimer timer_;
};

/// Returns the sizes of copies that are measured if the user gives none: from 4 MiB to 4 GiB, but
/// at most half of `free_bytes`; small ones on the emulated device. Throws Error if none fits.
std::vector<int64_t> device_copy_sizes(Device device, int64_t free_bytes);

/// Measures the peak of matrix products of a runtime's accelerator.
double measure_gemm_peak(Runtime& runtime, DType dtype);

}  // namespace tessera
