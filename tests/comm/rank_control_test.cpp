#include "comm/rank_control.h"

#include <atomic>

#include <gtest/gtest.h>

#include "comm/ranks_and_values.h"

namespace tessera {
namespace {

using Text = std::optional<std::string>;

TEST(RankControl, OfOneRankAgreesWithItself) {
  const RankControl control;
  EXPECT_TRUE(control.first());
  EXPECT_FALSE(control.several());
  EXPECT_TRUE(control.any(true));
  EXPECT_FALSE(control.any(false));
  EXPECT_EQ(control.any_text("text"), "text");
  EXPECT_EQ(control.any_text({}), std::nullopt);
  EXPECT_EQ(control.tell(7), 7);
  EXPECT_EQ(control.attempt([] { throw Error("a problem"); }), "a problem");
  EXPECT_THROW(control.together([] { throw InternalError("as it was"); }), InternalError);
}

TEST(RankControl, TellsAllRanksWhatOneSays) {
  for (int speaker = 0; speaker < 3; ++speaker) {
    run_group(3, [&](Communicator& world) {
      const RankControl control(world);
      const bool own = world.position() == speaker;
      EXPECT_EQ(control.first(), world.position() == 0);
      EXPECT_TRUE(control.any(own));
      EXPECT_FALSE(control.any(false));
      EXPECT_EQ(control.any_text(own ? Text("from one") : Text()), "from one");
      EXPECT_EQ(control.any_text(own ? Text("") : Text()), "");
      EXPECT_EQ(control.any_text({}), std::nullopt);
      EXPECT_EQ(control.tell(world.position() == 0 ? -5 : 9), -5);
    });
  }
}

TEST(RankControl, GathersTheNumbersOfAll) {
  const std::vector<uint64_t> own{1, ~uint64_t{0}};
  EXPECT_EQ(RankControl().gather(own), own);
  run_group(3, [](Communicator& world) {
    const auto rank = static_cast<uint64_t>(world.position());
    const RankControl control(world);
    EXPECT_EQ(control.gather(std::vector{rank, ~rank}),
              (std::vector<uint64_t>{0, ~uint64_t{0}, 1, ~uint64_t{1}, 2, ~uint64_t{2}}));
    EXPECT_EQ(control.gather({}), std::vector<uint64_t>());
  });
}

TEST(RankControl, TakesTheTextOfTheFirstOfSeveral) {
  run_group(4, [](Communicator& world) {
    const Text own = world.position() == 0 ? Text() : std::to_string(world.position());
    EXPECT_EQ(RankControl(world).any_text(own), "1");
  });
}

TEST(RankControl, MakesAFailureThatOfAllRanks) {
  std::atomic<int> done = 0;
  run_group(3, [&](Communicator& world) {
    const RankControl control(world);
    const auto act = [&] {
      ++done;
      if (world.position() == 1) throw Error("rank 1 cannot");
    };
    EXPECT_EQ(control.attempt(act), "rank 1 cannot");
    EXPECT_EQ(control.attempt([] {}), std::nullopt);
    try {
      control.together(act);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "rank 1 cannot");
    }
  });
  EXPECT_EQ(done, 6);
}

}  // namespace
}  // namespace tessera
