#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/wait_time.h"
#include "mpi/joined.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Sets the timeout while it lives.
class Timeout {
 public:
  explicit Timeout(milliseconds timeout) { joined().set_timeout(timeout); }
  ~Timeout() { joined().set_timeout(kRankTimeout); }
};

Tensor zeros(const Shape& shape, DType dtype = DType::f32) {
  Tensor result(shape, dtype);
  result.fill_zero();
  return result;
}

/// Brings all processes together again after an error.
void meet_again() { new_group().barrier("again"); }

TEST(MpiErrors, DifferentCallsAreNamedOnAllRanks) {
  Communicator group = new_group();
  const bool odd = group.position() == 1;
  const Tensor value = zeros({odd ? 3 : 2});
  const auto call = [&] { group.all_reduce(odd ? "loss" : "norm", value, value); };
  const std::string error = error_of(call);
  // Over TCP, the ranks that had come are named: rank 1 and any of the others.
  std::vector<std::string> norms;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == 1) continue;
    norms.push_back(fmt::format("rank {} ({}) made call 0, all_reduce (sum) 'norm' of f32 [2]",
                                rank, joined().hosts()[static_cast<size_t>(rank)]));
  }
  EXPECT_THAT(error, AllOf(HasSubstr("do not make the same call"),
                           HasSubstr("rank 1 (" + joined().hosts()[1] +
                                     ") made call 0, all_reduce (sum) 'loss' of f32 [3]")));
  EXPECT_TRUE(std::ranges::any_of(norms, [&](const std::string& norm) {
    return error.find(norm) != std::string::npos;
  })) << error;
  EXPECT_EQ(error_of(call), error) << "the group is broken from then on";
  meet_again();
}

TEST(MpiErrors, DifferentCollectivesAreNamed) {
  Communicator group = new_group();
  const Tensor value = zeros({4});
  EXPECT_THAT(error_of([&] {
                if (group.position() == 0) {
                  group.barrier("step");
                } else {
                  group.broadcast("weights", 0, value);
                }
              }),
              AllOf(HasSubstr("made call 0, barrier 'step'"),
                    HasSubstr("made call 0, broadcast 'weights' of f32 [4] from rank 0")));
  meet_again();
}

TEST(MpiErrors, RowsThatAreCountedDifferently) {
  Communicator group = new_group();
  const int ranks = group.size();
  const Tensor from = zeros({4 * ranks, 2});
  const Tensor to = zeros({4 * ranks, 2});
  std::vector<int64_t> sent(static_cast<size_t>(ranks), 1);
  const std::vector<int64_t> received(static_cast<size_t>(ranks), 1);
  if (group.position() == 1) sent[0] = 3;
  EXPECT_THAT(error_of([&] { group.all_to_all_rows("tokens", from, sent, to, received); }),
              HasSubstr("rank 1 sends 3 rows to rank 0, which receives 1 from it"));
  meet_again();
}

TEST(MpiErrors, MessagesThatDiffer) {
  Communicator group = new_group();
  const Tensor value = zeros({4});
  if (group.position() == 0) {
    EXPECT_THAT(error_of([&] { group.send("boundary", 1, value); }),
                AllOf(HasSubstr("rank 0 sends message 0 'boundary' of f32 [4]"),
                      HasSubstr("rank 1 receives message 0 'gradient' of f32 [2]")));
  } else if (group.position() == 1) {
    EXPECT_THAT(error_of([&] { group.receive("gradient", 0, zeros({2})); }),
                HasSubstr("rank 0 sends message 0 'boundary'"));
  }
  meet_again();
}

TEST(MpiErrors, ARankThatDoesNotComeIsNamed) {
  Communicator group = new_group();
  meet_again();
  const Timeout timeout(milliseconds(400));
  if (group.position() == 1) {
    // It computes. A thread of it answers the others.
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return;
  }
  EXPECT_THAT(error_of([&] { group.barrier("step"); }),
              AllOf(HasSubstr("call 0, barrier 'step' of group [0, 1"),
                    HasSubstr("after 0.4 s (run.rank_timeout"), HasSubstr("rank 1 did not come"),
                    HasSubstr("Rank 1 "), HasSubstr("last finished call 0, barrier 'again'"),
                    HasSubstr("(on " + joined().hosts()[1] + ")")));
}

TEST(MpiErrors, ARankThatDoesNotAskForAGroupIsNamed) {
  meet_again();
  if (joined().rank() != 1) {
    const Timeout timeout(milliseconds(400));
    EXPECT_THAT(
        error_of([] { joined().group(first_ranks(joined().ranks()), "asked for by some"); }),
        HasSubstr("rank 1 (" + joined().hosts()[1] + ") did not ask for it"));
  }
  meet_again();
}

TEST(MpiErrors, ARankThatWaitsElsewhereSaysWhere) {
  meet_again();
  Communicator one = new_group();
  Communicator other = new_group();
  meet_again();
  const bool astray = one.position() == 1;
  const Timeout timeout(milliseconds(astray ? 3000 : 400));
  const std::string error = error_of([&] { (astray ? other : one).barrier("step"); });
  if (astray) return;
  EXPECT_THAT(error, AllOf(HasSubstr("rank 1 did not come"),
                           HasSubstr("Rank 1 waits in call 0, barrier 'step' of group [0, 1"),
                           HasSubstr("(on " + joined().hosts()[1] + ")")));
}

TEST(MpiErrors, WorkThatEndsOnOneRankEndsOnAllAndTheyStillAgree) {
  meet_again();
  Communicator control = joined().group(first_ranks(joined().ranks()), "control");
  Communicator work = joined().group(first_ranks(joined().ranks()), "work that ends");
  Communicator messages = joined().group(first_ranks(joined().ranks()), "messages that end");
  if (joined().rank() == 1) {
    { const PostedMessage posted = messages.post_send("x", 0, zeros({1 << 20})); }
    control.barrier("it has withdrawn a message");
    joined().end_work("its experts got too many rows");
  } else {
    const std::string expected = "rank 1 failed: its experts got too many rows";
    control.barrier("it has withdrawn a message");
    EXPECT_EQ(error_of([&] { messages.receive("x", 1, zeros({1 << 20})); }), expected);
    EXPECT_EQ(error_of([&] { work.barrier("step"); }), expected);
  }
  control.barrier("after it");
}

}  // namespace
}  // namespace tessera
