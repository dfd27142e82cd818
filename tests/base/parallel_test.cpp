#include "base/parallel.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace tessera {
namespace {

TEST(ParallelRanges, CoverEveryItemOnce) {
  for (const int threads : {1, 2, 5}) {
    for (const int64_t count : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
      parallel_ranges(threads, count, 3, [&](int64_t begin, int64_t end, int thread) {
        EXPECT_LT(thread, threads);
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      for (const auto& visit : visits) EXPECT_EQ(visit, 1) << threads << " threads, " << count;
    }
  }
}

TEST(ParallelRanges, GiveEachThreadItsGrain) {
  std::atomic<int> ranges = 0;
  parallel_ranges(8, 10, 6, [&](int64_t, int64_t, int) { ++ranges; });
  EXPECT_LE(ranges, 2);
}

TEST(ParallelRanges, SmallWorkKeepsTheThreadsOfLargeWork) {
  const auto threads_of_large_work = [] {
    std::vector<pid_t> ids(4);
    parallel_ranges(4, 4, 1, [&](int64_t, int64_t, int thread) {
      ids[static_cast<size_t>(thread)] = ::gettid();
    });
    return ids;
  };
  const std::vector<pid_t> before = threads_of_large_work();
  parallel_ranges(4, 2, 1, [](int64_t, int64_t, int) {});
  parallel_items(4, 2, [](int64_t, int) {});
  EXPECT_EQ(threads_of_large_work(), before);
}

TEST(ParallelItems, VisitEveryItemOnce) {
  for (const int threads : {1, 3}) {
    std::vector<std::atomic<int>> visits(50);
    parallel_items(threads, 50, [&](int64_t item, int) { ++visits[static_cast<size_t>(item)]; });
    for (const auto& visit : visits) EXPECT_EQ(visit, 1);
  }
}

}  // namespace
}  // namespace tessera
