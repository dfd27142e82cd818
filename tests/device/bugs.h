#pragma once

#include <cstdint>

namespace tessera {

class Stream;

/// What is wrong with the kernel of bugs.cu.
enum class Bug {
  none,
  missing_barrier,      ///< between a write to shared memory and others' reads
  barrier_in_a_branch,  ///< that some threads do not take
  missing_lane,         ///< has returned when its warp shuffles
  read_past_the_end,    ///< of the input
  one_element_for_all,  ///< all threads write one element
};

/// Launches two blocks of 256 threads: out[i] = the sum of x[0 .. n), n at most 256, for i of 512.
template <typename Vendor>
void sum_with_bug(Bug bug, const float* x, int n, float* out, Stream& stream);

}  // namespace tessera
