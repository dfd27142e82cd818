#pragma once

#include <cstdint>

namespace tessera {

/// Returns the sum of term(i) over [0, count), computed in the type Sum. Element i goes to partial
/// sum i mod 64, and the partial sums are added in pairs at the end. The loop iterations are
/// independent, so the loops vectorise. The order of the additions depends on `count` alone.
template <typename Sum, typename Term>
inline Sum interleaved_sum(int64_t count, Term term) {
  constexpr int64_t kSums = 64;
  Sum sums[kSums] = {};
  int64_t start = 0;
  for (; start + kSums <= count; start += kSums) {
#pragma GCC ivdep
    for (int64_t at = 0; at < kSums; ++at) sums[at] += term(start + at);
  }
#pragma GCC ivdep
  for (int64_t at = 0; at < count - start; ++at) sums[at] += term(start + at);
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t at = 0; at < half; ++at) sums[at] += sums[at + half];
  }
  return sums[0];
}

}  // namespace tessera
