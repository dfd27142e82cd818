#include "ops/weight_parts.h"

#include "ops/support.h"

namespace tessera {
namespace {

/// Writes the totals of columns [begin, end), which belong to one weight. `totals` begins with the
/// total of column `begin`. It shares no memory with the parts, so "ivdep" holds.
void add_columns(const WeightParts& sums, int64_t begin, int64_t end, float* totals) {
  std::fill_n(totals, end - begin, 0.0f);
  for (int64_t part = 0; part < sums.count; ++part) {
    const float* part_sums = sums.parts + part * sums.width + begin;
#pragma GCC ivdep
    for (int64_t i = 0; i < end - begin; ++i) totals[i] += part_sums[i];
  }
}

}  // namespace

void add_weight_parts(const WeightParts& sums, int threads) {
  parallel_ranges(threads, sums.width, row_grain(sums.count), [=](int64_t begin, int64_t end, int) {
    int64_t weight_begin = 0;
    for (int weight = 0; weight < WeightParts::kWeights; ++weight) {
      const int64_t sum_begin = std::max(begin, weight_begin);
      const int64_t sum_end = std::min(end, weight_begin + sums.sizes[weight]);
      if (sum_begin < sum_end) {
        add_columns(sums, sum_begin, sum_end, sums.gradients[weight] + (sum_begin - weight_begin));
      }
      weight_begin += sums.sizes[weight];
    }
  });
}

}  // namespace tessera
