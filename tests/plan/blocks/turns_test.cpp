#include "plan/blocks/turns.h"

#include <array>
#include <csignal>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

/// A pipe that the other program writes to, and a file for what it reads.
class TurnsTest : public ::testing::Test {
 protected:
  TurnsTest() : output_(std::fopen((folder_ / "output").c_str(), "w")) {
    EXPECT_EQ(::pipe(pipe_.data()), 0);
  }
  ~TurnsTest() override {
    std::fclose(output_);
    ::close(pipe_[0]);
    end_input();
  }
  TurnsTest(const TurnsTest&) = delete;
  TurnsTest& operator=(const TurnsTest&) = delete;

  void send(std::string_view text) const {
    EXPECT_EQ(::write(pipe_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void end_input() {
    if (pipe_[1] >= 0) ::close(pipe_[1]);
    pipe_[1] = -1;
  }
  bool turn() const { return take_turn(output_, pipe_[0]); }
  /// What the other program can read by now.
  std::string printed() const { return read_file(folder_ / "output"); }

  TemporaryFolder folder_;
  std::array<int, 2> pipe_{-1, -1};
  std::FILE* output_;
};

TEST_F(TurnsTest, EachTakesALineUntilTheInputEnds) {
  send("go\n\nhalf a line");
  end_input();
  EXPECT_TRUE(turn());
  EXPECT_EQ(printed(), "turn\n");
  EXPECT_TRUE(turn());
  EXPECT_FALSE(turn());
  EXPECT_EQ(printed(), "turn\nturn\nturn\n");
}

TEST_F(TurnsTest, ASignalEndsTheWait) {
  const InterruptGuard guard;
  end_input();  // so that a wait that overlooks the signal ends as well
  std::raise(SIGINT);
  EXPECT_THAT(error_of([&] { turn(); }), HasSubstr("interrupted"));
}

}  // namespace
}  // namespace tessera
