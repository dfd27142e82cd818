#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ops/gemm/gemm.h"
#include "program/operation.h"
#include "tensor/dtype.h"

namespace tessera {

/// How often a matrix product of a step ran.
struct ProductRuns {
  int product = 0;  ///< which one: its place in StepTrace::products
  int64_t runs = 0;

  bool operator==(const ProductRuns&) const = default;
};

/// One operation, or one piece of work that is no operation, of a traced step.
struct TraceEvent {
  std::string name;   ///< of the operation: "linear"
  std::string block;  ///< of the model, or "data", "optimizer"
  std::string phase;  ///< "forward", "recompute", "backward", "update"; "step" outside of programs
  int layer = -1;
  Lane lane = Lane::compute;
  double start = 0;           ///< seconds since the trace began, by the lane's own clock
  double duration = 0;        ///< seconds
  double flops = 0;           ///< that the model demands, of matrix products
  double backward_flops = 0;  ///< of them, those of the backward pass that the forward pass does
  double repeated_flops = 0;  ///< done again instead of keeping results: beyond `flops`
  double bytes = 0;           ///< read and written, each operand once
  std::string shape;          ///< of the first output
  std::vector<ProductRuns> products;  ///< that really ran, with padding and masked halves of tiles

  bool operator==(const TraceEvent&) const = default;
};

/// The run and the machine that a trace comes from.
struct TraceOrigin {
  std::string processor;              ///< its name
  std::vector<std::string> features;  ///< of its instruction sets (see Processor)
  int threads = 1;
  int rank = 0;
  Precision precision = Precision::bf16;  ///< of the run
  /// Best rate of a square product, FLOP/s, to which the run's MFU refers: of run.hardware, or
  /// measured when the run began.
  double gemm_peak = 0;
  int64_t tokens = 0;  ///< of one step

  bool operator==(const TraceOrigin&) const = default;
};

/// One training step of a rank: what ran when. Events of a lane follow one another without overlap;
/// what lies between them is idle time.
struct StepTrace {
  TraceOrigin origin;
  int64_t number = 0;   ///< of the step, from 1
  double start = 0;     ///< seconds since the trace began
  double duration = 0;  ///< seconds
  std::vector<TraceEvent> events;
  std::vector<GemmShape> products;  ///< each matrix product of the step once

  /// The number of a product, which is added where it is new.
  int number_of(const GemmShape& product);

  bool operator==(const StepTrace&) const = default;
};

/// Writes a step as JSON in the trace event format that Chrome (chrome://tracing) and Perfetto
/// (ui.perfetto.dev) open; what is not of that format stands in "otherData". Atomic; throws Error
/// when it cannot.
void write_trace(const std::filesystem::path& path, const StepTrace& step);

/// Reads what write_trace() wrote. Throws Error that says what is wrong with a damaged file, with
/// the trace of another program, of another version, of no step or of several.
StepTrace read_trace(const std::filesystem::path& path);

}  // namespace tessera
