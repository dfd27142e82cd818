#include "comm/rank_control.h"

#include <array>
#include <atomic>
#include <chrono>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "comm/ranks_and_values.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Text = std::optional<std::string>;

/// Runs body(control, world) on so many ranks, which have a short time to come to a call.
void run_controlled(int ranks, const std::function<void(const RankControl&, RankGroups&)>& body) {
  World world(ranks, std::chrono::seconds(20));
  run_mesh(world, Mesh({.data = {ranks}}),
           [&](RankGroups& groups) { body(RankControl(groups), groups); });
}

TEST(RankControl, OfOneRankAgreesWithItself) {
  const RankControl control;
  EXPECT_TRUE(control.is_first());
  EXPECT_FALSE(control.several());
  EXPECT_TRUE(control.any(true));
  EXPECT_FALSE(control.any(false));
  EXPECT_EQ(control.any_text("text"), "text");
  EXPECT_EQ(control.any_text({}), std::nullopt);
  EXPECT_EQ(control.attempt([] { throw Error("a problem"); }), "a problem");
  EXPECT_THROW(control.together([] { throw InternalError("as it was"); }), InternalError);
}

TEST(RankControl, TellsAllRanksWhatOneSays) {
  for (int speaker = 0; speaker < 3; ++speaker) {
    run_controlled(3, [&](const RankControl& control, RankGroups& groups) {
      const bool own = groups.rank() == speaker;
      EXPECT_EQ(control.is_first(), groups.rank() == 0);
      EXPECT_TRUE(control.any(own));
      EXPECT_FALSE(control.any(false));
      EXPECT_EQ(control.any_text(own ? Text("from one") : Text()), "from one");
      EXPECT_EQ(control.any_text(own ? Text("") : Text()), "");
      EXPECT_EQ(control.any_text({}), std::nullopt);
    });
  }
}

TEST(RankControl, NamesTheWorkThatARankIsMissingIn) {
  World world(2, std::chrono::milliseconds(50));
  std::atomic<bool> ended = false;
  run_mesh(world, Mesh({.data = {2}}), [&](RankGroups& groups) {
    const RankControl control(groups);
    if (groups.rank() == 0) return ended.wait(false);
    EXPECT_THAT(
        error_of([&] { control.during("the save of step 12").wait(); }),
        AllOf(HasSubstr("'wait of the save of step 12'"),
              HasSubstr("after 0.05 s (run.rank_timeout"), HasSubstr("rank 0 did not come")));
    ended = true;
    ended.notify_one();
  });
}

TEST(RankControl, GathersTheNumbersOfAll) {
  const std::vector<uint64_t> own{1, ~uint64_t{0}};
  EXPECT_EQ(RankControl().gather(own), own);
  run_controlled(3, [](const RankControl& control, RankGroups& groups) {
    const auto rank = static_cast<uint64_t>(groups.rank());
    EXPECT_EQ(control.gather(std::vector{rank, ~rank}),
              (std::vector<uint64_t>{0, ~uint64_t{0}, 1, ~uint64_t{1}, 2, ~uint64_t{2}}));
    EXPECT_EQ(control.gather({}), std::vector<uint64_t>());
  });
}

TEST(RankControl, TakesTheTextOfTheFirstOfSeveral) {
  run_controlled(4, [](const RankControl& control, RankGroups& groups) {
    const Text own = groups.rank() == 0 ? Text() : std::to_string(groups.rank());
    EXPECT_EQ(control.any_text(own), "1");
  });
}

TEST(RankControl, TakesTheTextWithTheLowestNumber) {
  run_controlled(4, [](const RankControl& control, RankGroups& groups) {
    EXPECT_EQ(control.rank(), groups.rank());
    const std::string text = std::to_string(groups.rank());
    // Rank 2 has the lowest number, rank 3 too, and rank 0 has no text for its still lower one.
    const Text own = groups.rank() == 0 ? Text() : text;
    const int64_t number = std::array<int64_t, 4>{1, 9, 5, 5}[static_cast<size_t>(groups.rank())];
    EXPECT_EQ(control.lowest_text(number, own), "2");
    EXPECT_EQ(control.lowest_text(7, text), "0");
    EXPECT_EQ(control.lowest_text(0, {}), std::nullopt);
  });
  EXPECT_EQ(RankControl().lowest_text(3, "own"), "own");
}

TEST(RankControl, MakesAFailureThatOfAllRanks) {
  std::atomic<int> done = 0;
  run_controlled(3, [&](const RankControl& control, RankGroups& groups) {
    const auto act = [&] {
      ++done;
      if (groups.rank() == 1) throw Error("cannot");
    };
    EXPECT_EQ(control.attempt(act), "rank 1: cannot");
    EXPECT_EQ(control.attempt([] {}), std::nullopt);
    EXPECT_EQ(error_of([&] { control.together(act); }), "rank 1: cannot");
    EXPECT_EQ(control.attempt([] { throw Error("nobody can"); }), "nobody can");
    const std::string own = std::to_string(groups.rank());
    EXPECT_EQ(control.attempt([&] { throw Error("{}", own); }), "rank 0: 0") << "all, differently";
  });
  EXPECT_EQ(done, 6);
}

TEST(RankControl, CallsRanksByTheirNames) {
  run_controlled(2, [](const RankControl& /*unnamed*/, RankGroups& groups) {
    const RankControl control(groups, {"rank 0 (here)", "rank 1 (there)"});
    EXPECT_EQ(control.attempt([&] {
      if (groups.rank() == 1) throw Error("cannot");
    }),
              "rank 1 (there): cannot");
  });
}

TEST(RankControl, DoesForAllWhatTheFirstDoes) {
  std::atomic<int> done = 0;
  run_controlled(3, [&](const RankControl& control, RankGroups& /*groups*/) {
    control.on_first([&] { ++done; });
    EXPECT_EQ(error_of([&] { control.on_first([] { throw Error("the folder is taken"); }); }),
              "the folder is taken");
  });
  EXPECT_EQ(done, 1);
}

TEST(RankControl, EndsTheWorkOfAllWhereOneFailsInItAndGoesOnAgreeing) {
  const auto begin = std::chrono::steady_clock::now();
  run_controlled(4, [](const RankControl& control, RankGroups& groups) {
    const Axis data = groups.mesh().data().front();
    const Tensor sum({1}, DType::f32);
    EXPECT_EQ(control.attempt_work([&] { groups.world("network").barrier("begin"); }),
              std::nullopt);
    const auto failure = control.attempt_work([&] {
      if (groups.rank() == 2) throw Error("no more rows");
      if (groups.rank() == 3) return;  // is done before it hears of that
      // Of these two, one waits in a group that the other ranks did not join yet.
      groups.over(std::span(&data, 1), groups.rank() == 0 ? "network" : "compute")
          .all_reduce("sum", sum, sum);
    });
    EXPECT_EQ(failure, "rank 2 failed: no more rows");
    // Later calls on those lanes end too, also in new groups; those between steps do not.
    EXPECT_THROW(groups.world("network").barrier("later"), Error);
    EXPECT_THROW(groups.world("compute").barrier("later"), Error);
    EXPECT_TRUE(control.any(groups.rank() == 0));
    EXPECT_EQ(control.attempt_work([] {}), std::nullopt);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

}  // namespace
}  // namespace tessera
