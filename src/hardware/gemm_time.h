#pragma once

#include "ops/gemm/gemm.h"

namespace tessera {

/// Bytes of the operands with which time_gemm() measures a product on that many threads.
double timed_gemm_bytes(const GemmShape& shape, int threads);

/// The seconds that one run of a product takes when nothing else runs, the least of what about
/// `budget` seconds of measuring show. The operands are random normal numbers, warm in the caches
/// as far as they fit. A product of several threads has them all. Of a product of one thread each
/// of `threads` runs its own at the same time and the time is divided by their number: what one
/// costs within a parallel region whose work divides evenly.
double time_gemm(const GemmShape& shape, int threads, double budget);

}  // namespace tessera
