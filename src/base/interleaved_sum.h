#pragma once

#include <cstdint>

namespace tessera {

/// Returns the sum of term(i) over [0, count), computed in the type Sum. Term i is added to partial
/// sum i mod 64. At the end the upper half of the partial sums is added to the lower half, until
/// one is left. The iterations of each loop are independent, so the compiler can vectorise it
/// (ivdep promises that). The order of the additions depends on `count` alone.
template <typename Sum, typename Term>
inline Sum interleaved_sum(int64_t count, Term term) {
  constexpr int64_t kSums = 64;
  Sum sums[kSums] = {};
  int64_t start = 0;
  for (; start + kSums <= count; start += kSums) {
#pragma GCC ivdep
    for (int64_t lane = 0; lane < kSums; ++lane) sums[lane] += term(start + lane);
  }
#pragma GCC ivdep
  for (int64_t lane = 0; lane < count - start; ++lane) sums[lane] += term(start + lane);
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

}  // namespace tessera
