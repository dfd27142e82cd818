#pragma once

#include <algorithm>
#include <cstdint>

#include <omp.h>

namespace tessera {

// Loops on OpenMP's threads, which oneDNN uses too. A team is the threads that run one loop. It has
// either `threads` threads or one thread: for a team of another size OpenMP would end threads and
// start them again for the next loop. The bodies of loops do not throw.

/// Marks a function that is compiled once for all its callers. GCC may clone even a noinline
/// function for the arguments of one caller; noipa forbids that too.
#if defined(__GNUC__) && !defined(__clang__)
#define TESSERA_MADE_ONCE [[gnu::noipa]]
#else
#define TESSERA_MADE_ONCE [[gnu::noinline]]
#endif

namespace parallel {

// Runs the body of a loop. One thread and several threads must run the same machine code: in a
// second version the compiler might fuse other multiplications with additions, and the bits of a
// result would depend on the number of threads.
template <typename Body, typename... Arguments>
TESSERA_MADE_ONCE void call(Body& body, Arguments... arguments) {
  body(arguments...);
}

}  // namespace parallel

#undef TESSERA_MADE_ONCE

/// Calls body(begin, end, thread) on contiguous ranges that cover [0, count), one range per thread.
/// There are at most `threads` ranges and at most one per `grain` items (rounded up). The ranges
/// depend on `threads`. If a result must not depend on `threads`, the body must compute each item
/// on its own.
template <typename Body>
void parallel_ranges(int threads, int64_t count, int64_t grain, Body&& body) {
  const int64_t max_ranges = (count + grain - 1) / std::max<int64_t>(grain, 1);
  if (std::min<int64_t>(max_ranges, threads) <= 1) {
    if (count > 0) parallel::call(body, int64_t{0}, count, 0);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int64_t thread = omp_get_thread_num();
    const int64_t ranges = std::min<int64_t>(max_ranges, omp_get_num_threads());
    if (thread < ranges) {
      parallel::call(body, count * thread / ranges, count * (thread + 1) / ranges,
                     static_cast<int>(thread));
    }
  }
}

/// Calls body(item, thread) for each item of [0, count). Items are handed out one at a time as
/// threads become free, which suits items of unequal cost.
template <typename Body>
void parallel_items(int threads, int64_t count, Body&& body) {
  if (std::min<int64_t>(count, threads) <= 1) {
    for (int64_t item = 0; item < count; ++item) parallel::call(body, item, 0);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t item = 0; item < count; ++item) parallel::call(body, item, omp_get_thread_num());
}

}  // namespace tessera
