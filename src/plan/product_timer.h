#pragma once

#include <functional>
#include <vector>

#include "plan/step_account.h"

namespace tessera {

/// What a timer measures with.
struct ProductMeasuring {
  int threads = 1;  ///< that there are
  /// Seconds of one run of a product in a program of that many threads, one number a sample.
  std::function<std::vector<double>(const GemmShape&, int threads)> samples;
  /// FLOP/s of that many threads together on operands of that type.
  std::function<double(DType, int threads)> rate;
};

/// This machine as it is: time_gemm() for about 40 ms, and the rate of a small product.
ProductMeasuring measuring_here();

/// A timer that measures on this machine and gives the best sample of a product. Throws Error when
/// the trace comes from another processor, or from more threads than there are here; the timer when
/// the operands of a product exceed half of the memory, or one run would take longer than ten
/// seconds.
ProductTimer measuring_timer(const TraceOrigin& origin,
                             ProductMeasuring measuring = measuring_here());

}  // namespace tessera
