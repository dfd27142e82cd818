#include "plan/product_timer.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/threads.h"
#include "hardware/gemm_rate.h"
#include "hardware/gemm_time.h"
#include "plan/trace_processor.h"
#include "tensor/memory_pool.h"

namespace tessera {
namespace {

/// One run: a head's product of a large model takes some seconds on two cores in f32.
constexpr double kLongestRun = 10;

void require_same_machine(const TraceOrigin& origin, int threads_here) {
  const Processor there = processor_of(origin);
  const Processor here = this_processor(origin.threads);
  if (!same_processor(there, here)) {
    throw Error(
        "the trace comes from {}, this is {}; measure its products on the machine that it comes "
        "from",
        describe(there), describe(here));
  }
  if (origin.threads > threads_here) {
    throw Error(
        "the trace comes from {} threads, there are {} here; measure its products where "
        "there are as many",
        origin.threads, threads_here);
  }
}

/// Times products, and refuses those that no step of this machine can have run.
class MeasuringTimer {
 public:
  MeasuringTimer(int threads, int threads_here) : threads_(threads), threads_here_(threads_here) {}

  double operator()(const GemmShape& shape) {
    constexpr double kSecondsEach = 0.04;
    require_room(shape);
    require_short(shape);
    return std::ranges::min(time_gemm(shape, threads_, {.seconds = kSecondsEach}));
  }

 private:
  void require_room(const GemmShape& shape) const {
    const double bytes = timed_gemm_bytes(shape, threads_);
    const auto most = static_cast<double>(physical_memory()) / 2;
    if (shape.threads <= threads_here_ && bytes <= most) return;
    throw Error(
        "a product of {} x {} x {} on {} threads with {:.3g} bytes of operands cannot be "
        "measured here: there are {} threads and {:.3g} bytes for it",
        shape.m, shape.n, shape.k, shape.threads, bytes, threads_here_, most);
  }

  void require_short(const GemmShape& shape) {
    // Products of fewer threads have their share of the rate only, or run as often at once.
    const double rate = rate_of(shape.input) * shape.threads / threads_;
    const double seconds = shape.flops() / rate;
    if (seconds <= kLongestRun) return;
    throw Error(
        "a product of {} x {} x {} in {} cannot be measured here: one run would take {:.3g} s at "
        "the {:.3g} FLOP/s of its {} threads, expected {:.0f} s at most; no step of this machine "
        "ran it",
        shape.m, shape.n, shape.k, dtype_name(shape.input), seconds, rate, shape.threads,
        kLongestRun);
  }

  /// The rate of all threads on a small product, measured once for each type.
  double rate_of(DType dtype) {
    double& rate = rates_[dtype];
    if (rate == 0) {
      constexpr int64_t kSide = 512;
      rate = measure_gemm({.dtype = dtype, .m = kSide, .n = kSide, .k = kSide}, threads_,
                          {.seconds = 0.01, .least_samples = 1})
                 .best;
    }
    return rate;
  }

  int threads_;  // of the trace's run
  int threads_here_;
  std::map<DType, double> rates_;
};

}  // namespace

ProductTimer measuring_timer(const TraceOrigin& origin) {
  const int here = threads_or_all(0);
  require_same_machine(origin, here);
  return MeasuringTimer(origin.threads, here);
}

}  // namespace tessera
