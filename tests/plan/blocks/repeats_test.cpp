#include "plan/blocks/repeats.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/interrupt.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Repeats, WarmUpComesFirstAndDoesNotCount) {
  std::vector<bool> runs;
  std::vector<int64_t> announced;
  const Repeats repeats{.warmup = 2, .measured = 3, .before = [&](int64_t repeat) {
                          announced.push_back(repeat);
                          return true;
                        }};
  repeats.each([&](bool measured) { runs.push_back(measured); });
  EXPECT_THAT(runs, ElementsAre(false, false, true, true, true));
  EXPECT_THAT(announced, ElementsAre(0, 1, 2));
}

TEST(Repeats, BeforeMayEndThem) {
  int runs = 0;
  Repeats repeats{.warmup = 0, .measured = 10, .before = [](int64_t repeat) { return repeat < 4; }};
  repeats.each([&](bool) { ++runs; });
  EXPECT_EQ(runs, 4);
  repeats.before = [](int64_t) { return false; };
  EXPECT_THAT(error_of([&] { repeats.each([](bool) {}); }), HasSubstr("no run was measured"));
}

TEST(Repeats, NeedsARunToMeasure) {
  EXPECT_THAT(error_of([] { Repeats{.measured = 0}.each([](bool) {}); }), HasSubstr("at least 1"));
}

TEST(Repeats, ASignalEndsThem) {
  const InterruptGuard guard;
  int runs = 0;
  const auto run = [&](bool) {
    if (++runs == 3) std::raise(SIGINT);
  };
  EXPECT_THAT(error_of([&] { Repeats{.warmup = 1, .measured = 9}.each(run); }),
              HasSubstr("interrupted"));
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace tessera
