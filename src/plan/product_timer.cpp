#include "plan/product_timer.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "hardware/gemm_time.h"
#include "hardware/processor.h"
#include "tensor/memory_pool.h"

namespace tessera {

ProductTimer measuring_timer(const TraceOrigin& origin) {
  constexpr double kSecondsEach = 0.04;
  const std::string processor = this_processor(0).name;
  if (processor != origin.processor) {
    throw Error(
        "the trace comes from a processor {}, this is {}; measure its products on the machine "
        "that it comes from",
        origin.processor, processor);
  }
  const int here = threads_or_all(0);
  if (origin.threads > here) {
    throw Error(
        "the trace comes from {} threads, there are {} here; measure its products where "
        "there are as many",
        origin.threads, here);
  }
  return [threads = origin.threads, here](const GemmShape& shape) {
    const double bytes = timed_gemm_bytes(shape, threads);
    const auto most = static_cast<double>(physical_memory()) / 2;
    if (shape.threads > here || bytes > most) {
      throw Error(
          "a product of {} x {} x {} on {} threads with {:.3g} bytes of operands cannot be "
          "measured here: there are {} threads and {:.3g} bytes for it",
          shape.m, shape.n, shape.k, shape.threads, bytes, here, most);
    }
    return std::ranges::min(time_gemm(shape, threads, {.seconds = kSecondsEach}));
  };
}

}  // namespace tessera
