#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "hardware/memory_rate.h"
#include "plan/blocks/measurement_report.h"
#include "plan/blocks/repeats.h"

namespace tessera {

/// The runs of one operation in a step: all nodes of that name.
struct KernelMeasurement {
  std::string operation;
  int64_t nodes = 0;
  double flops = 0;             ///< of all nodes' matrix products, repeated ones included
  double bytes = 0;             ///< that all nodes read and write (see Cost::bytes)
  std::vector<double> seconds;  ///< of all nodes together, one number for each measured step
};

/// The runs of one part of a step.
struct SegmentMeasurement {
  std::string segment;  ///< "start", "forward", "backward", "update"; "forward and backward"
  double flops = 0;     ///< the useful ones of its matrix products
  /// From the beginning of its first operation to the end of its last, one number for each measured
  /// step.
  std::vector<double> seconds;
};

/// Each operation of a configuration's steps on a device, timed by the device's events.
struct KernelsReport {
  MeasuredOn on;
  MemoryRate copy;     ///< within the device's memory, of the largest working set
  int64_t tokens = 0;  ///< of the micro-batch
  int64_t parameters = 0;
  int64_t arena_bytes = 0;                    ///< weights, states, inputs and activations
  std::vector<SegmentMeasurement> segments;   ///< in the order of a step, both passes together last
  std::vector<KernelMeasurement> operations;  ///< longest first

  /// Returns the bytes per second of an operation in the median step, as a share of the copy's.
  double share_of_copy(const KernelMeasurement& operation) const;
  /// Returns the FLOP/s of an operation in the median step, as a share of the GEMM peak.
  double share_of_peak(const KernelMeasurement& operation) const;

  std::string text() const;
  std::string json() const;  ///< one object on one line
};

/// Runs steps with one micro-batch as measure_step() does, without graphs and with events of the
/// device around each operation, as a trace has them. Takes a resolved configuration whose device
/// is not the processor. Throws Error if it is, or if the step does not fit the device or cannot
/// run there.
KernelsReport measure_kernels(const RunConfig& config, const Repeats& repeats);

}  // namespace tessera
