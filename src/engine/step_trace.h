#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "ops/gemm/gemm.h"
#include "program/operation.h"
#include "tensor/dtype.h"

namespace tessera {

// A traced training step of one rank. pipeline/run_trace.h has those of all ranks, and their file.

/// The number of runs of one matrix product.
struct ProductRuns {
  int product = 0;  ///< index in StepTrace::products
  int64_t runs = 0;

  bool operator==(const ProductRuns&) const = default;
};

/// A group of ranks in which the rank of a trace calls others.
struct TraceGroup {
  std::vector<std::string> axes;  ///< names of axes of the mesh, innermost first; at least one
  std::vector<int> stages;        ///< pipeline stages whose ranks are in it; empty for all
  int first_rank = 0;             ///< the lowest number of its ranks
  int ranks = 2;                  ///< their number

  auto operator<=>(const TraceGroup&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// One operation of a traced step, or one piece of work outside operations.
struct TraceEvent {
  std::string name;   ///< of the operation: "linear"
  std::string block;  ///< of the model, or "data", "optimizer"
  std::string phase;  ///< "forward", "recompute", "backward", "update"; "step" outside of programs
  int layer = -1;
  Lane lane = Lane::compute;
  double start = 0;           ///< seconds since the trace began, by the lane's own clock
  double duration = 0;        ///< seconds
  double flops = 0;           ///< of matrix products, required by the model
  double backward_flops = 0;  ///< the part of `flops` for the backward pass in a forward node
  double repeated_flops = 0;  ///< repeated instead of keeping results; not part of `flops`
  double bytes = 0;           ///< read and written, each operand once
  std::string shape;          ///< of the first output
  std::vector<ProductRuns> products;  ///< as they ran: padding and masked parts of tiles included
  /// The groups of ranks that it calls, as indices in StepTrace::groups. An operation that goes
  /// through the levels of an axis one after the other has one group over all of them.
  std::vector<int> groups = {};
  double wire_bytes = 0;  ///< that this rank sends in them (see Cost::wire)

  bool operator==(const TraceEvent&) const = default;
};

/// The run and the machine that a trace comes from.
struct TraceOrigin {
  std::string processor;              ///< its name
  std::vector<std::string> features;  ///< names of its instruction sets (see Processor)
  int threads = 1;
  int rank = 0;
  Precision precision = Precision::bf16;  ///< of the run
  /// The best rate of a square matrix product in FLOP/s, to which the run's MFU refers. It comes
  /// from run.hardware or was measured when the run began.
  double gemm_peak = 0;
  int64_t tokens = 0;            ///< of one step
  Device device = Device::cpu;   ///< the device that computed the step
  std::string accelerator = {};  ///< the device's name, unless it is the processor

  bool operator==(const TraceOrigin&) const = default;
};

/// A traced training step of a rank: its operations and their times. Events of the same lane do not
/// overlap. A lane is idle between its events.
struct StepTrace {
  TraceOrigin origin;
  int64_t number = 0;   ///< of the step, from 1
  double start = 0;     ///< seconds since the trace began
  double duration = 0;  ///< seconds
  /// The part of the duration in which the trace itself worked: in no event, nor in the step's own
  /// time.
  double recording_seconds = 0;
  /// A time is at most this far, in seconds, from the true one on the axis of times: that of the
  /// processor's clock, or of the first rank's in a RunTrace.
  double clock_uncertainty = 0;
  std::vector<TraceEvent> events;
  std::vector<GemmShape> products;      ///< each distinct matrix product of the step once
  std::vector<TraceGroup> groups = {};  ///< each distinct group of ranks once

  /// Returns the index of a product in `products`; adds the product if it is new.
  int index_of(const GemmShape& product);

  bool operator==(const StepTrace&) const = default;
};

}  // namespace tessera
