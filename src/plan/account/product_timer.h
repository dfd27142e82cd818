#pragma once

#include <functional>
#include <vector>

#include "plan/account/step_account.h"

namespace tessera {

/// The measurements that a timer makes. Tests replace them.
struct ProductMeasuring {
  int threads = 1;  ///< of this machine
  /// Returns the seconds of one run of a product in a program with the given number of threads, one
  /// number per sample.
  std::function<std::vector<double>(const GemmShape&, int threads)> samples;
  /// Returns the FLOP/s that the given number of threads reach together on operands of that type.
  std::function<double(DType, int threads)> rate;
};

/// Returns measurements of this machine: time_gemm() for about 40 ms, and the rate of a small
/// product.
ProductMeasuring measuring_here();

/// Returns a timer that measures on this machine and returns the best sample of a product. Throws
/// Error when the trace comes from a device, from another processor, or from more threads than
/// there are here. The timer throws Error when a product has more threads than there are here, when
/// its operands exceed half of the memory, or when one run would take longer than ten seconds.
ProductTimer measuring_timer(const TraceOrigin& origin,
                             ProductMeasuring measuring = measuring_here());

}  // namespace tessera
