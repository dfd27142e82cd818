#pragma once

#include <cstdint>

namespace tessera {

/// The sum of term(i) over [0, count), added in Sum: element i goes to the sum of lane i mod 64,
/// and the lanes are added in pairs at the end. The loops are over independent elements, so they
/// vectorise without changing the order of the additions, which depends on `count` alone.
template <typename Sum, typename Term>
inline Sum lane_sum(int64_t count, Term term) {
  constexpr int64_t kLanes = 64;
  Sum lanes[kLanes] = {};
  int64_t start = 0;
  for (; start + kLanes <= count; start += kLanes) {
#pragma GCC ivdep
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(start + lane);
  }
#pragma GCC ivdep
  for (int64_t lane = 0; lane < count - start; ++lane) lanes[lane] += term(start + lane);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace tessera
