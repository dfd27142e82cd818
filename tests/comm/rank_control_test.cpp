#include "comm/rank_control.h"

#include <array>
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

TEST(RankControl, TakesTheTextOfTheFirstOfSeveral) {
  run_group(4, [](Communicator& world) {
    const Text own = world.position() == 0 ? Text() : std::to_string(world.position());
    EXPECT_EQ(RankControl(world).any_text(own), "1");
  });
}

TEST(RankControl, TakesTheTextWithTheLowestNumber) {
  run_group(4, [](Communicator& world) {
    const int position = world.position();
    const RankControl control(world);
    EXPECT_EQ(control.rank(), position);
    const std::string text = std::to_string(position);
    // Rank 2 has the lowest number, rank 3 too, and rank 0 has no text for its still lower one.
    const Text own = position == 0 ? Text() : text;
    const int64_t number = std::array<int64_t, 4>{1, 9, 5, 5}[static_cast<size_t>(position)];
    EXPECT_EQ(control.lowest_text(number, own), "2");
    EXPECT_EQ(control.lowest_text(7, text), "0");
    EXPECT_EQ(control.lowest_text(0, {}), std::nullopt);
  });
  EXPECT_EQ(RankControl().lowest_text(3, "own"), "own");
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
