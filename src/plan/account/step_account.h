#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/words.h"
#include "hardware/processor.h"
#include "pipeline/run_trace.h"
#include "plan/account/run_account.h"

namespace tessera {

// The account of a traced step says where the step's time went, and what limits each part of it.

/// The ceilings: the best rates that the machine reaches; 0 if not known.
struct Ceilings {
  double gemm_flops = 0;    ///< per second, of a matrix product in the run's precision
  double memory_bytes = 0;  ///< per second, read and written
  std::string gemm_source;  ///< the source of the figure, in words
  std::string memory_source;
};

/// The sources of the ceilings of an account. Each ceiling comes from the first source that has it:
/// the user's figure, the hardware file, and for matrix products the run's own peak.
struct CeilingSources {
  double gemm_flops = 0;    ///< per second; 0 if the user gives none
  double memory_bytes = 0;  ///< per second; 0 if the user gives none
  fs::path hardware;        ///< the file that `bench all` wrote; empty if none
  /// True to measure on this machine. If the run's own peak is used, the peak is measured, too, and
  /// the higher one is taken, because the run may have begun on a busy machine.
  bool measure = false;
};

/// Returns the ceilings for a trace. From the hardware file, the memory's bandwidth is the rate of
/// the best loop over the file's largest working set.
///
/// Throws Error if a ceiling is to be taken from the hardware file, but the file
///
/// - was measured on another accelerator or processor than the trace, or with other threads;
/// - has products, but none in the trace's precision;
/// - has bandwidths, but none of the loop `update`.
Ceilings find_ceilings(const TraceOrigin& origin, const CeilingSources& sources);

/// The limit of a row of the account. The *floor* of an event is the least time that the ceilings
/// allow: the time of its matrix products or the time of its bytes, whichever is longer. A ceiling
/// is the limit if the floors of the row's events make up at least half of the row's time.
enum class Limit {
  compute,   ///< the rate of matrix products
  memory,    ///< the memory's bandwidth
  cache,     ///< the caches: the row is faster than the memory's bandwidth allows
  overhead,  ///< no ceiling
  unknown,   ///< the row states no cost, or its ceiling is not known
};
template <>
inline constexpr std::array<std::string_view, 5> kWordsOf<Limit>{"compute", "memory", "cache",
                                                                 "overhead", ""};

/// A row of the account: the sum of all events of one operation, block, phase or part.
struct AccountRow {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;         ///< in which its events are counted (see StepAccount)
  double beside_seconds = 0;  ///< the other seconds of its events, beside one that is counted
  /// The FLOPs of the recorded matrix products; for operations that record none, the stated FLOPs.
  double flops = 0;
  double product_flops = 0;   ///< the part of `flops` in recorded products
  double backward_flops = 0;  ///< of the backward pass, but computed during the forward pass
  double bytes = 0;           ///< of the operands (see Cost::bytes)
  double alone_seconds = 0;   ///< of its products, each timed alone; 0 if not measured
  /// The seconds of the floors. The time of an event's products is alone_seconds if it was
  /// measured, and otherwise their FLOPs at the peak.
  double compute_floor = 0;  ///< of the events whose products take longer than their bytes
  double memory_floor = 0;   ///< of the other events
  Limit limit = Limit::unknown;
  std::string reason;  ///< the shares of the row's time from which the limit follows

  /// Returns the seconds that its events took.
  double event_seconds() const { return seconds + beside_seconds; }
};

/// A matrix product of a step, and the number of its runs.
struct ProductRow {
  GemmRuns product;
  double seconds = 0;  ///< one run alone; 0 if not measured
};

/// The account of the time of one step on one rank. A moment in which several events are under way
/// counts for one of them: that of the compute lane, and otherwise the one that began first. So the
/// rows of each list of AccountRow and the idle time add up to the step.
struct StepAccount {
  TraceOrigin origin;
  int64_t step = 0;
  Ceilings ceilings;
  bool measured = false;    ///< true if the products were timed alone
  double seconds = 0;       ///< of the step, without the time in which the trace itself worked
  double idle_seconds = 0;  ///< in no event of any lane
  /// The FLOPs that the model demands, forward and backward, which MFU counts. They are not reduced
  /// by document masks, nor by tokens that experts drop.
  double useful_flops = 0;
  double alone_seconds = 0;            ///< of all matrix products, each timed alone
  double flops_in_no_product = 0;      ///< of operations that record no product: kernels' own loops
  std::vector<AccountRow> operations;  ///< longest first, as in the other lists
  std::vector<AccountRow> blocks;
  std::vector<AccountRow> phases;
  /// Operations with matrix products, operations without, communication, optimizer and data. If the
  /// products were timed alone, the first are two rows: the products alone, and the rest. The rest
  /// is negative if the products ran faster in the step than alone.
  std::vector<AccountRow> parts;
  std::vector<ProductRow> products;
  std::optional<RunAccount> run;  ///< of all ranks, if the run has several
};

/// A function that returns the seconds that one run of a product takes alone.
using ProductTimer = std::function<double(const GemmShape&)>;

/// Returns the processor of a trace, with the threads of its run, but without its caches.
inline Processor processor_of(const TraceOrigin& origin) {
  return {.name = origin.processor, .features = origin.features, .threads = origin.threads};
}

/// Returns the account of a rank's step. Its waits for messages count as communication. If a timer
/// is given, it times each distinct product once.
StepAccount account_for(const RankTrace& trace, const Ceilings& ceilings,
                        const ProductTimer& timer = {});

/// Returns the account as tables for a terminal.
std::string account_text(const StepAccount& account);

/// Returns the account as one JSON object. Times are in seconds; rates are not written.
std::string account_json(const StepAccount& account);

/// Reads a trace from a run's folder or from a file, and returns the account of its step on `rank`,
/// or on the first rank that the trace has. If the sources say `measure`, times each of the step's
/// matrix products alone, on threads bound like a step's. Throws Error as read_trace(), of_rank()
/// and find_ceilings() do, and before anything is measured if the trace comes from another machine.
StepAccount summarize_trace(const fs::path& run_or_file, std::optional<int> rank,
                            const CeilingSources& sources);

}  // namespace tessera
