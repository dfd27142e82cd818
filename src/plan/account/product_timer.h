#pragma once

#include <functional>
#include <vector>

#include "plan/account/step_account.h"

namespace tessera {

/// The measurements that a timer of products makes. Tests replace them.
struct ProductMeasuring {
  int threads = 1;  ///< the number of usable threads of this machine
  /// Returns samples of the seconds of one run of a product, in a program of `threads` threads.
  std::function<std::vector<double>(const GemmShape&, int threads)> samples;
  /// Returns the FLOP/s that `threads` threads reach together on operands of this dtype.
  std::function<double(DType, int threads)> rate;
};

/// Returns measurements of this machine: about 40 ms of runs, and the rate of a small product.
ProductMeasuring measuring_here();

/// Returns a timer that measures on this machine and returns the best sample of a product. Throws
/// Error if the trace comes from a device, from another processor, or from more threads than there
/// are here. The timer throws Error if a product has more threads than there are here, if its
/// operands exceed half of the memory, or if one run would take longer than ten seconds.
ProductTimer measuring_timer(const TraceOrigin& origin,
                             ProductMeasuring measuring = measuring_here());

}  // namespace tessera
