#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/gemm/gemm.h"

namespace tessera {

/// The time for measuring one matrix product, or one piece of other work. After a run for warm-up,
/// samples are taken for `seconds` seconds, but at least `least_samples` samples.
struct GemmBudget {
  double seconds = 0.1;
  int least_samples = 3;
};

/// Returns the bytes of the operands with which time_gemm() measures a product on `threads`
/// threads, the packed copies of B included.
double timed_gemm_bytes(const GemmShape& shape, int threads);

/// Returns the seconds of one run, given that `copies` threads at once did `repeats` runs each in
/// `elapsed` seconds.
double seconds_a_run(double elapsed, int64_t repeats, int copies);

/// Measures the seconds that one run of a product takes when nothing else runs. Returns one number
/// for each sample. A short product runs several times in a sample.
///
/// The operands are random normal numbers, which are in the caches as far as they fit. A product of
/// several threads runs alone. For a product of one thread, each of `threads` threads runs a copy
/// of its own at the same time, and the time is divided by the number of threads. That is the cost
/// of one run within a parallel region whose work divides evenly. With packed_b, B is packed before
/// the first run, and no sample includes the packing.
///
/// A signal that an InterruptGuard caught ends the samples early. The caller must check for it
/// before it reports anything (see require_no_interrupt()).
std::vector<double> time_gemm(const GemmShape& shape, int threads, const GemmBudget& budget);

/// Does the same with the prepared products and the threads of a runtime. `clock` returns the
/// seconds since some fixed moment.
std::vector<double> time_gemm(Runtime& runtime, const GemmShape& shape, const GemmBudget& budget,
                              const std::function<double()>& clock);

}  // namespace tessera
