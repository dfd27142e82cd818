#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "hardware/memory_rate.h"
#include "plan/blocks/measurement_report.h"
#include "plan/blocks/repeats.h"

namespace tessera {

/// The measurements of one operation in a step: the sum over all nodes of that name.
struct KernelMeasurement {
  std::string operation;
  int64_t nodes = 0;
  double flops = 0;             ///< of the matrix products of all nodes, recomputed ones included
  double bytes = 0;             ///< read and written by all nodes (see Cost::bytes)
  std::vector<double> seconds;  ///< the sum over all nodes, for each measured step
};

/// The measurements of one part of a step.
struct SegmentMeasurement {
  std::string segment;  ///< "start", "forward", "backward", "update"; "forward and backward"
  double flops = 0;     ///< of its matrix products, without recomputed ones
  std::vector<double> seconds;  ///< from its first operation to its last, for each measured step
};

/// The measurements of each operation of a step on a device, timed by the device's events.
struct KernelsReport {
  MeasuredOn on;
  MemoryRate copy;     ///< of the largest working set, within the device's memory
  int64_t tokens = 0;  ///< in the micro-batch
  int64_t parameters = 0;
  int64_t arena_bytes = 0;                    ///< for weights, states, inputs and activations
  std::vector<SegmentMeasurement> segments;   ///< in the order of a step, then both passes
  std::vector<KernelMeasurement> operations;  ///< longest first

  /// Returns the bytes per second of an operation in the median step, as a fraction of the copy's.
  double share_of_copy(const KernelMeasurement& operation) const;
  /// Returns the FLOP/s of an operation in the median step, as a fraction of the GEMM peak.
  double share_of_peak(const KernelMeasurement& operation) const;

  std::string text() const;
  std::string json() const;  ///< on one line
};

/// Runs steps with one micro-batch and measures the operations of all chunks. Steps run as in
/// measure_step(), but without graphs and with events of the device around each operation, as in a
/// trace. Copies from chunk to chunk are not measured. Takes a resolved configuration, whatever its
/// schedule is. Throws Error if its device is the processor, if it asks for several ranks, or if
/// the step does not fit the device or cannot run there.
KernelsReport measure_kernels(const RunConfig& config, const Repeats& repeats);

}  // namespace tessera
