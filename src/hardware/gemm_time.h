#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/gemm/gemm.h"

namespace tessera {

/// How long one product is measured: samples follow one of warm-up for that long, and there are at
/// least so many.
struct GemmBudget {
  double seconds = 0.1;
  int least_samples = 3;
};

/// Bytes of the operands with which time_gemm() measures a product on that many threads.
double timed_gemm_bytes(const GemmShape& shape, int threads);

/// The seconds that one run takes when `copies` threads at once did `repeats` runs each.
double seconds_a_run(double elapsed, int64_t repeats, int copies);

/// The seconds that one run of a product takes when nothing else runs, one number for each sample;
/// a short product runs several times in a sample. The operands are random normal numbers, warm in
/// the caches as far as they fit. A product of several threads has them all. Of a product of one
/// thread each of `threads` runs its own at the same time and the time is divided by their number:
/// what one costs within a parallel region whose work divides evenly. Where B is laid out for the
/// product (packed_b), it is so before the first run, and no sample holds that. A signal that an
/// InterruptGuard caught ends the samples early; whoever then reports asks for it (see
/// require_no_interrupt()).
std::vector<double> time_gemm(const GemmShape& shape, int threads, const GemmBudget& budget);

/// The same with a runtime's products and threads, by a clock that gives seconds since some moment.
std::vector<double> time_gemm(Runtime& runtime, const GemmShape& shape, const GemmBudget& budget,
                              const std::function<double()>& clock);

}  // namespace tessera
