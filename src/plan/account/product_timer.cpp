#include "plan/account/product_timer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/affinity.h"
#include "base/error.h"
#include "base/threads.h"
#include "base/usable_memory.h"
#include "hardware/gemm_rate.h"
#include "hardware/gemm_time.h"

namespace tessera {
namespace {

/// The limit of one run, in seconds. In f32 on two cores, a large head's product takes some
/// seconds.
constexpr double kMaxSeconds = 10;

void require_same_machine(const TraceOrigin& origin, int threads_here) {
  if (origin.device != Device::cpu) {
    throw Error(
        "the trace comes from {}, and products are measured alone on processors only; leave "
        "--measure out. `tessera bench gemm --device {}` measures products there",
        origin.accelerator, word(origin.device));
  }
  const Processor traced = processor_of(origin);
  const Processor present = this_processor(origin.threads);
  if (!same_processor(traced, present)) {
    throw Error(
        "the trace comes from {}, this is {}; measure its products on the machine that it comes "
        "from",
        describe(traced), describe(present));
  }
  if (origin.threads > threads_here) {
    throw Error(
        "the trace comes from {} threads, there are {} here; measure its products where "
        "there are as many",
        origin.threads, threads_here);
  }
}

/// Times products. Refuses products that no step of this machine can have run.
class MeasuringTimer {
 public:
  MeasuringTimer(int threads, ProductMeasuring measuring)
      : threads_(threads), measuring_(std::move(measuring)) {}

  double operator()(const GemmShape& shape) {
    require_room(shape);
    require_short(shape);
    return std::ranges::min(measuring_.samples(shape, threads_));
  }

 private:
  /// Throws if the product has too many threads, or operands of more than half of the memory.
  void require_room(const GemmShape& shape) const {
    const double bytes = timed_gemm_bytes(shape, threads_);
    const auto max_bytes = static_cast<double>(usable_memory().bytes) / 2;
    if (shape.threads <= measuring_.threads && bytes <= max_bytes) return;
    throw Error(
        "a product of {} x {} x {} on {} threads with {:.3g} bytes of operands cannot be "
        "measured here: there are {} threads and {:.3g} bytes for it",
        shape.m, shape.n, shape.k, shape.threads, bytes, measuring_.threads, max_bytes);
  }

  /// Throws if one run would take longer than kMaxSeconds.
  void require_short(const GemmShape& shape) {
    // A product on fewer threads has only their share of the rate, alone or beside others.
    const double rate = rate_of(shape.input) * shape.threads / threads_;
    const double seconds = shape.flops() / rate;
    if (seconds <= kMaxSeconds) return;
    throw Error(
        "a product of {} x {} x {} in {} cannot be measured here: one run would take {:.3g} s at "
        "the {:.3g} FLOP/s of its {} threads, expected {:.0f} s at most; no step of this machine "
        "ran it",
        shape.m, shape.n, shape.k, dtype_name(shape.input), seconds, rate, shape.threads,
        kMaxSeconds);
  }

  /// Returns the rate of all threads, which is measured once per type.
  double rate_of(DType dtype) {
    double& rate = rates_[dtype];
    if (rate == 0) rate = measuring_.rate(dtype, threads_);
    return rate;
  }

  int threads_;  // of the trace's run
  ProductMeasuring measuring_;
  std::map<DType, double> rates_;
};

}  // namespace

ProductMeasuring measuring_here() {
  return {.threads = threads_or_all(0),
          .samples = [](const GemmShape& shape,
                        int threads) { return time_gemm(shape, threads, {.seconds = 0.04}); },
          .rate =
              [](DType dtype, int threads) {
                constexpr int64_t kSide = 512;  // a guess is enough, and it must be quick
                const GemmRate small{.dtype = dtype, .m = kSide, .n = kSide, .k = kSide};
                return measure_gemm(small, threads, {.seconds = 0.01, .least_samples = 1}).best;
              }};
}

ProductTimer measuring_timer(const TraceOrigin& origin, ProductMeasuring measuring) {
  require_same_machine(origin, measuring.threads);
  return MeasuringTimer(origin.threads, std::move(measuring));
}

StepAccount summarize_trace(const fs::path& run_or_file, std::optional<int> rank,
                            const CeilingSources& sources) {
  const RunTrace run = read_trace(trace_file(run_or_file));
  const RankTrace& trace = rank ? run.of_rank(*rank) : run.ranks.front();
  const TraceOrigin& origin = trace.step.origin;
  // The timer is made first: on another machine this throws before anything is measured.
  const ProductTimer timer = sources.measure ? measuring_timer(origin) : ProductTimer();
  // A step's threads are bound to cores unless run.bind_threads is false, so these are bound, too.
  const BoundTeam team(sources.measure ? origin.threads : 1);
  StepAccount account = account_for(trace, find_ceilings(origin, sources), timer);
  if (run.ranks.size() > 1 || run.ranks_left_out > 0) account.run = account_for_run(run);
  return account;
}

}  // namespace tessera
