#include "base/interleaved_sum.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tessera {
namespace {

TEST(InterleavedSum, AddsEveryTermOnce) {
  for (const int64_t count : {0, 1, 63, 64, 65, 1000}) {
    std::vector<int> taken(static_cast<size_t>(count));
    const double sum = interleaved_sum<double>(count, [&](int64_t i) {
      ++taken[static_cast<size_t>(i)];
      return static_cast<double>(i + 1);
    });
    EXPECT_EQ(sum, static_cast<double>(count * (count + 1) / 2)) << count;
    EXPECT_EQ(taken, std::vector<int>(static_cast<size_t>(count), 1)) << count;
  }
}

/// The order that the header promises, one addition after another: 64 running sums, then pairs of
/// them with the upper half added to the lower.
float in_the_promised_order(const std::vector<float>& terms) {
  std::vector<float> sums(64);
  for (size_t i = 0; i < terms.size(); ++i) sums[i % 64] += terms[i];
  for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
    for (size_t i = 0; i < sums.size() / 2; ++i) {
      sums[i] += sums[i + sums.size() / 2];
    }
  }
  return sums[0];
}

TEST(InterleavedSum, TheOrderDependsOnTheCountAlone) {
  const CounterRandom random(1, "terms");
  for (const int64_t count : {1, 63, 64, 65, 1000}) {
    std::vector<float> terms;
    for (int64_t i = 0; i < count; ++i) {
      terms.push_back(static_cast<float>(random.normal(static_cast<uint64_t>(i))));
    }
    // At every alignment, on which a vectorised sum may stumble.
    for (size_t offset = 0; offset < 16; ++offset) {
      std::vector<float> moved(offset, 1e9F);
      moved.insert(moved.end(), terms.begin(), terms.end());
      const float* begin = moved.data() + offset;
      EXPECT_EQ(interleaved_sum<float>(count, [=](int64_t i) { return begin[i]; }),
                in_the_promised_order(terms))
          << count << " terms at " << offset;
    }
  }
}

}  // namespace
}  // namespace tessera
