#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/words.h"
#include "engine/step_trace.h"
#include "hardware/processor.h"

namespace tessera {

/// The best rates that the machine reaches; 0 if not known.
struct Ceilings {
  double gemm_flops = 0;    ///< per second, of a matrix product in the run's precision
  double memory_bytes = 0;  ///< per second, read and written
  std::string gemm_source;  ///< the source of the figure
  std::string memory_source;
};

/// The sources of the ceilings of an account. The first source that knows a ceiling decides: the
/// user's figure, then the hardware file, then (for matrix products) the run's own peak.
struct CeilingSources {
  double gemm_flops = 0;    ///< per second; 0 if the user gives none
  double memory_bytes = 0;  ///< per second; 0 if the user gives none
  fs::path hardware;        ///< the file that `bench all` wrote; empty if none
  /// True to measure the peak of matrix products here, too. The higher of it and the run's is
  /// taken, because the run may have begun on a busy machine.
  bool measure = false;
};

/// Returns the ceilings for a trace. The memory's ceiling from the hardware file is that of the
/// best loop over the file's largest working set.
///
/// Throws Error when something is to be taken from the file and the file was measured on another
/// accelerator or processor than the trace's, or with another number of threads, has products but
/// none in the trace's precision, or has bandwidths but none of `update`.
Ceilings find_ceilings(const TraceOrigin& origin, const CeilingSources& sources);

/// The limit of a row. It is a ceiling if the floors of the ceilings explain at least half of the
/// row's time.
enum class Limit {
  compute,   ///< the rate of matrix products
  memory,    ///< the memory's bandwidth
  cache,     ///< faster than the memory: the operands come from the caches
  overhead,  ///< far from every ceiling
  unknown,   ///< the row states no cost, or its ceiling is not known
};
template <>
inline constexpr std::array<std::string_view, 5> kWords<Limit>{"compute", "memory", "cache",
                                                               "overhead", ""};

/// The sum of some events of a step.
struct AccountRow {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
  /// The FLOPs of the matrix products that ran; for operations that record no products, the FLOPs
  /// that they state.
  double flops = 0;
  double product_flops = 0;   ///< the part of `flops` in recorded products
  double backward_flops = 0;  ///< of the backward pass, but computed during the forward pass
  double bytes = 0;           ///< of the operands (see Cost::bytes)
  double alone_seconds = 0;   ///< of its matrix products at stand-alone speed; 0 if not measured
  /// The least time by the roofline. An event's floor is the larger of two times: that of its
  /// products (alone, or at the peak if that was not measured) and that of its bytes.
  /// `compute_floor` adds up the events where the first is larger, `memory_floor` the others.
  double compute_floor = 0;
  double memory_floor = 0;
  Limit limit = Limit::unknown;
  std::string reason;  ///< the ceiling that the row is at, and how near it is
};

/// A matrix product of a step, and the number of its runs.
struct ProductRow {
  GemmRuns product;
  double seconds = 0;  ///< one run alone; 0 if not measured
};

/// The account of the time of one step. In each list, the rows and the idle time add up to the step
/// if lanes do not overlap, as on the processor.
struct StepAccount {
  TraceOrigin origin;
  int64_t step = 0;
  Ceilings ceilings;
  bool measured = false;    ///< true if the products were timed alone
  double seconds = 0;       ///< of the step
  double idle_seconds = 0;  ///< in no event of any lane
  /// The FLOPs that the model demands, forward and backward. MFU counts these. Document masks and
  /// tokens that experts drop do not reduce it.
  double useful_flops = 0;
  double alone_seconds = 0;  ///< of all its matrix products at stand-alone speed
  /// The FLOPs of operations that record no product: kernels with their own loops.
  double own_flops = 0;
  std::vector<AccountRow> operations;  ///< longest first, as in the other lists
  std::vector<AccountRow> blocks;
  std::vector<AccountRow> phases;
  /// Products alone, the rest of their operations, other operations, ... The rest is negative if
  /// the products were measured slower than they ran.
  std::vector<AccountRow> parts;
  std::vector<ProductRow> products;
};

/// A function that returns the seconds that one run of a product takes alone.
using ProductTimer = std::function<double(const GemmShape&)>;

/// Returns the processor that a trace comes from, with the threads of its run. Its caches are not
/// recorded.
inline Processor processor_of(const TraceOrigin& origin) {
  return {.name = origin.processor, .features = origin.features, .threads = origin.threads};
}

/// Returns the account of a step. If a timer is given, it times each distinct product once.
StepAccount account_for(const StepTrace& trace, const Ceilings& ceilings,
                        const ProductTimer& timer = {});

/// Returns the account as tables for a terminal.
std::string account_text(const StepAccount& account);

/// Returns the account as one JSON object. Times are in seconds; rates are not written.
std::string account_json(const StepAccount& account);

/// Reads a trace from a run's folder or from a file, and returns the account of its step. If the
/// sources say `measure`, times each of the step's matrix products alone, on threads bound like a
/// step's. Throws Error as read_trace() and find_ceilings() do, and before anything is measured if
/// the trace comes from another machine.
StepAccount summarize_trace(const fs::path& run_or_file, const CeilingSources& sources);

}  // namespace tessera
