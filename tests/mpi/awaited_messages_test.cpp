// Messages that are posted and awaited later, among processes.
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/posted_programs.h"
#include "comm/wait_time.h"
#include "mpi/joined.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Numbers of f32 of messages that go with their fingerprints, and of others.
constexpr int64_t kSmall = 16;
constexpr int64_t kLarge = int64_t{1} << 20;

Tensor contents(int64_t elements, int seed) { return random_tensor({elements}, DType::f32, seed); }
Tensor memory(int64_t elements) { return Tensor({elements}, DType::f32); }

/// Brings all processes together again after an error.
void join_again() { new_group().barrier("again"); }

TEST(MpiPosts, ArriveInAnyProgramWithoutADeadlock) {
  Communicator group = new_group();
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const PostedProgram program = any_posted_program(group.size(), seed);
    EXPECT_TRUE(run_posted(program, group) == expected_of(program, group.position()));
  }
}

TEST(MpiPosts, ManyAreUnderWayBetweenAllRanks) {
  constexpr int kEach = 40;
  Communicator group = new_group();
  for (const int64_t elements : {kSmall, int64_t{3000}, int64_t{40'000}}) {
    std::vector<PostedMessage> messages;
    std::vector<std::pair<Tensor, int>> received;  // with the seeds of their contents
    for (int peer = 0; peer < group.size(); ++peer) {
      for (int i = 0; i < kEach; ++i) {
        const auto seed = [&](int from, int to) { return (from * 8 + to) * kEach + i; };
        const int own = group.position();
        received.emplace_back(memory(elements), seed(peer, own));
        messages.push_back(group.post_receive("each", peer, received.back().first));
        messages.push_back(group.post_send("each", peer, contents(elements, seed(own, peer))));
      }
    }
    for (PostedMessage& message : messages) group.wait(message);
    for (const auto& [tensor, seed] : received) {
      EXPECT_TRUE(bytes_of(tensor) == bytes_of(contents(elements, seed)));
    }
  }
}

/// The rank that has only posted then waits elsewhere, until the other tells it that it has the
/// message.
TEST(MpiPosts, AWaitNeedsOnlyThePostOfTheOther) {
  Communicator group = new_group();
  Communicator elsewhere = new_group();
  for (const int64_t elements : {kSmall, kLarge}) {
    for (const bool sender_waits_first : {true, false}) {
      if (group.position() > 1) continue;
      const bool sender = group.position() == 0;
      const Tensor value = sender ? contents(elements, 1) : memory(elements);
      PostedMessage message =
          sender ? group.post_send("x", 1, value) : group.post_receive("x", 0, value);
      if (sender == sender_waits_first) {
        group.wait(message);
        elsewhere.send("it has come", 1 - group.position(), memory(1));
      } else {
        elsewhere.receive("it has come", 1 - group.position(), memory(1));
        group.wait(message);
      }
      EXPECT_TRUE(bytes_of(value) == bytes_of(contents(elements, 1)));
    }
  }
  join_again();
}

/// Rank 0 waits in a call of all while a message of it is under way, also one of another group.
TEST(MpiPosts, MoveWhileOneRankIsInACollective) {
  Communicator group = new_group();
  Communicator other = new_group();
  for (Communicator* const meeting : {&group, &other}) {
    for (const int64_t elements : {kSmall, kLarge}) {
      const Tensor value = group.position() == 0 ? contents(elements, 1) : memory(elements);
      PostedMessage message;
      if (group.position() == 0) message = group.post_send("x", 1, value);
      if (group.position() == 1) message = group.post_receive("x", 0, value);
      if (group.position() == 1) group.wait(message);
      meeting->barrier("all");
      if (group.position() == 0) group.wait(message);
      if (group.position() == 1) {
        EXPECT_TRUE(bytes_of(value) == bytes_of(contents(elements, 1)));
      }
    }
  }
}

TEST(MpiPosts, ThatDifferAreNamedOnBothSides) {
  for (const auto& [name, elements] :
       {std::pair{"y", kSmall}, std::pair{"x", kLarge}, std::pair{"x", kSmall + 1}}) {
    Communicator group = new_group();
    if (group.position() < 2) {
      const bool sender = group.position() == 0;
      PostedMessage message = sender ? group.post_send("x", 1, memory(kSmall))
                                     : group.post_receive(name, 0, memory(elements));
      const std::string error = error_of([&] { group.wait(message); });
      EXPECT_THAT(error, AllOf(HasSubstr("rank 0 sends message 0 'x' of f32 [16]"),
                               HasSubstr(fmt::format("rank 1 receives message 0 '{}' of f32 [{}]",
                                                     name, elements))));
      EXPECT_EQ(error_of([&] { group.send("later", 1 - group.position(), memory(1)); }), error);
    }
    join_again();
  }
}

TEST(MpiPosts, ThatAreWithdrawnAreAnErrorOfTheOther) {
  for (const bool sender_withdraws : {true, false}) {
    Communicator group = new_group();
    join_again();
    if (group.position() < 2) {
      const bool sender = group.position() == 0;
      std::optional<PostedMessage> message;
      const auto post = [&] {
        const Tensor value = memory(kLarge);
        message = sender ? group.post_send("x", 1, value) : group.post_receive("x", 0, value);
      };
      if (sender == sender_withdraws) {
        post();
        message.reset();
        new_group().barrier("withdrawn");
      } else {
        new_group().barrier("withdrawn");
        post();
        EXPECT_THAT(error_of([&] { group.wait(*message); }),
                    HasSubstr(fmt::format("rank {} has withdrawn it", 1 - group.position())));
      }
    } else {
      new_group().barrier("withdrawn");
    }
    join_again();
  }
}

TEST(MpiPosts, NameTheRankThatDoesNotPost) {
  Communicator group = new_group();
  join_again();
  if (group.position() == 1) {
    // It computes. A thread of it answers the others.
    std::this_thread::sleep_for(std::chrono::seconds(2));
  } else {
    joined().set_timeout(milliseconds(400));
    PostedMessage message = group.post_receive("x", 1, memory(kSmall));
    EXPECT_THAT(error_of([&] { group.wait(message); }),
                AllOf(HasSubstr("message 0 'x' of f32 [16] from rank 1 to rank"),
                      HasSubstr("after 0.4 s (run.rank_timeout"), HasSubstr("rank 1 did not come"),
                      HasSubstr("last finished call 0")));
    joined().set_timeout(kRankTimeout);
  }
}

}  // namespace
}  // namespace tessera
