#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step_trace.h"

namespace tessera {

/// What the machine reaches at best; 0: not known.
struct Ceilings {
  double gemm_flops = 0;    ///< a second, of a matrix product in the run's precision
  double memory_bytes = 0;  ///< a second, read and written
  std::string gemm_source;  ///< where the figure comes from
  std::string memory_source;
};

/// What limits a row: the ceiling of which it reaches at least half, or neither.
enum class Limit {
  compute,   ///< its matrix products
  memory,    ///< operands at the memory's bandwidth
  cache,     ///< faster than the memory: the operands come from the caches
  overhead,  ///< far from every ceiling
  unknown,   ///< it states no cost, or its ceiling is not known
};
/// "compute", "memory", ...; "" for unknown.
std::string_view limit_name(Limit limit);

/// Events of a step added up.
struct AccountRow {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
  /// Of the matrix products that ran; of operations that record none, those that they state.
  double flops = 0;
  double product_flops = 0;   ///< of them, those of recorded products
  double backward_flops = 0;  ///< of the backward pass, done in the forward pass
  double bytes = 0;           ///< of the operands (see Cost::bytes)
  double alone_seconds = 0;   ///< of its matrix products at stand-alone speed; 0 if not measured
  /// The least time by the roofline, of the events whose ceiling is their products' rate (alone, or
  /// at the peak where that is not measured) and of those whose ceiling is the memory.
  double compute_floor = 0;
  double memory_floor = 0;
  Limit limit = Limit::unknown;
  std::string reason;  ///< how far from which ceiling
};

/// A matrix product of a step.
struct ProductRow {
  GemmRuns product;
  double seconds = 0;  ///< one run alone; 0 if not measured
};

/// Where the time of one step went. The rows of each of the lists, with the idle time, add up to
/// the step.
struct StepAccount {
  TraceOrigin origin;
  int64_t step = 0;
  Ceilings ceilings;
  bool measured = false;    ///< whether the products were timed alone
  double seconds = 0;       ///< of the step
  double idle_seconds = 0;  ///< in no event
  /// That the model demands, forward and backward: what MFU counts. Masks between documents and
  /// tokens that experts drop do not lessen them.
  double useful_flops = 0;
  double alone_seconds = 0;  ///< of all its matrix products at stand-alone speed
  /// Of operations that state FLOPs and record no product: kernels with loops of their own.
  double own_flops = 0;
  std::vector<AccountRow> operations;  ///< the longest first, as in the other lists
  std::vector<AccountRow> blocks;
  std::vector<AccountRow> phases;
  /// Products alone, the rest of their operations, others, ...; the rest is negative where products
  /// were measured slower than they ran.
  std::vector<AccountRow> parts;
  std::vector<ProductRow> products;
};

/// The seconds that one run of a product takes alone.
using ProductTimer = std::function<double(const GemmShape&)>;

/// Adds up a step. With a timer each distinct product is timed once.
StepAccount account_for(const StepTrace& trace, const Ceilings& ceilings,
                        const ProductTimer& timer = {});

}  // namespace tessera
