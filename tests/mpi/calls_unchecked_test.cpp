// Calls that processes do not compare before they make them. The control plane finds what goes
// wrong, from what ranks tell it of their waits.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/wait_time.h"
#include "mpi/as_threads.h"
#include "mpi/joined.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A communicator of all processes that compares no calls.
Communicator unchecked_group() {
  Communicator group = new_group();
  group.compare_calls(false);
  return group;
}

Tensor numbers(int64_t elements) { return random_tensor({elements}, DType::f32, 1); }

/// Brings all processes together again after an error.
void gather_again() { new_group().barrier("again"); }

TEST(UncheckedCalls, GiveTheBitsOfThreads) {
  Communicator group = unchecked_group();
  const int ranks = group.size();
  for (const int64_t length : {1L, 700L, 5000L, 40'000L, 300'000L}) {
    SCOPED_TRACE(length);
    expect_bits_of_threads(group, [&](Communicator& of) {
      const PieceLayout layout = even_pieces(ranks * length, ranks);
      const Tensor piece = random_tensor({length}, DType::f32, of.position());
      const Tensor whole = random_tensor({ranks * length}, DType::f32, 10 + of.position());
      const Tensor got = random_tensor({ranks * length}, DType::f32, 99);
      std::string result;
      of.all_gather("gather", layout, piece, got);
      result += bytes_of(got);
      of.all_to_all("blocks", whole, got);
      result += bytes_of(got);
      of.reduce_scatter("scatter", layout, whole, piece);
      of.all_reduce("sum", whole, whole);
      of.broadcast("from the last", ranks - 1, piece);
      of.barrier("all");
      return result + bytes_of(whole) + bytes_of(piece);
    });
  }
}

/// They would wait for half an hour: nothing but the control plane ends them.
TEST(UncheckedCalls, ThatDifferAreNamedWhileAllRanksWait) {
  Communicator group = unchecked_group();
  const bool odd = group.position() == 1;
  const Tensor value = numbers(odd ? 3 : 2);
  const auto call = [&] { group.all_reduce(odd ? "loss" : "norm", value, value); };
  const std::string error = error_of(call);
  EXPECT_THAT(error, AllOf(HasSubstr("do not make the same call"),
                           HasSubstr("made call 0, all_reduce (sum) 'norm' of f32 [2]"),
                           HasSubstr("rank 1 (" + joined().hosts()[1] +
                                     ") made call 0, all_reduce (sum) 'loss' of f32 [3]")));
  EXPECT_EQ(error_of(call), error) << "the group is broken from then on";
  gather_again();
}

TEST(UncheckedCalls, MessagesThatDifferAreNamedWhileBothRanksWait) {
  constexpr int64_t kLarge = 1 << 20;
  Communicator group = unchecked_group();
  const auto says = AllOf(HasSubstr("rank 0 sends message 0 'boundary' of f32 [1048576]"),
                          HasSubstr("rank 1 receives message 0 'gradient' of f32 [8]"));
  if (group.position() == 0) {
    EXPECT_THAT(error_of([&] { group.send("boundary", 1, numbers(kLarge)); }), says);
  } else if (group.position() == 1) {
    const Tensor to = numbers(8);
    EXPECT_THAT(error_of([&] { group.receive("gradient", 0, to); }), says);
    EXPECT_TRUE(bytes_of(to) == bytes_of(numbers(8))) << "a message of another call came into it";
  }
  gather_again();
}

TEST(UncheckedCalls, ARankThatDoesNotComeIsNamed) {
  Communicator group = unchecked_group();
  group.barrier("before");
  gather_again();
  if (group.position() == 1) {
    // It computes. A thread of it answers the others.
    std::this_thread::sleep_for(std::chrono::seconds(1));
  } else {
    joined().set_timeout(milliseconds(400));
    EXPECT_THAT(error_of([&] { group.barrier("step"); }),
                AllOf(HasSubstr("call 1, barrier 'step' of group [0, 1"),
                      HasSubstr("after 0.4 s (run.rank_timeout"), HasSubstr("rank 1 did not come"),
                      HasSubstr("Rank 1 "), HasSubstr("last finished call 0, barrier 'again'"),
                      HasSubstr("(on " + joined().hosts()[1] + ")")));
    joined().set_timeout(kRankTimeout);
  }
  gather_again();
}

TEST(UncheckedCalls, ARankThatWaitsElsewhereSaysWhere) {
  Communicator one = unchecked_group();
  Communicator other = unchecked_group();
  gather_again();
  const bool astray = one.position() == 1;
  joined().set_timeout(milliseconds(astray ? 3000 : 400));
  const std::string error = error_of([&] { (astray ? other : one).barrier("step"); });
  joined().set_timeout(kRankTimeout);
  if (!astray) {
    EXPECT_THAT(error, AllOf(HasSubstr("rank 1 did not come"),
                             HasSubstr("Rank 1 waits in call 0, barrier 'step' of group [0, 1")));
  }
  gather_again();
}

TEST(UncheckedCalls, AMessageThatIsWithdrawnIsAnErrorOfTheOther) {
  constexpr int64_t kLarge = 1 << 20;
  for (const bool sender_withdraws : {true, false}) {
    Communicator group = unchecked_group();
    if (group.position() < 2) {
      const bool sender = group.position() == 0;
      const auto post = [&] {
        const Tensor value = numbers(kLarge);
        return sender ? group.post_send("x", 1, value) : group.post_receive("x", 0, value);
      };
      if (sender == sender_withdraws) {
        { const PostedMessage withdrawn = post(); }
        gather_again();
      } else {
        gather_again();
        PostedMessage message = post();
        EXPECT_THAT(error_of([&] { group.wait(message); }),
                    HasSubstr(fmt::format("rank {} has withdrawn it", 1 - group.position())));
      }
    } else {
      gather_again();
    }
    gather_again();
  }
}

/// Returns the number of threads of this process.
int64_t threads_now() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// While calls are compared, the first rank's process has a thread for each other rank of a group.
/// Over TCP it makes the calls themselves by these, and keeps them.
TEST(UncheckedCalls, TakeNoThreadsOfTheFirstRank) {
  const bool by_mpi = std::getenv("TESSERA_ADDRESS") == nullptr;
  Communicator all = new_group();  // is compared: the first rank has handled what came before
  auto expect_threads = [&, before = int64_t{-1}](int64_t more) mutable {
    all.barrier("threads");
    if (before < 0) before = threads_now();
    if (joined().rank() == 0) {
      EXPECT_EQ(threads_now() - before, more);
    }
    all.barrier("threads were counted");
  };
  expect_threads(0);
  const int64_t of_groups = int64_t{8} * (joined().ranks() - 1);
  std::vector<Communicator> groups;
  for (int i = 0; i < 8; ++i) groups.push_back(new_group());
  expect_threads(of_groups);
  for (Communicator& group : groups) group.compare_calls(false);
  expect_threads(by_mpi ? 0 : of_groups);
  for (Communicator& group : groups) group.compare_calls(true);
  expect_threads(of_groups);
  const bool odd = joined().rank() == 1;
  EXPECT_THAT(error_of([&] { groups[0].barrier(odd ? "left" : "right"); }),
              AllOf(HasSubstr("barrier 'left'"), HasSubstr("barrier 'right'")));
  groups.clear();
  expect_threads(0);
}

/// Rows may be counted differently in calls that have the same names and shapes.
TEST(UncheckedCalls, AreComparedAllTheSameWithCheckCalls) {
  joined().check_calls(true);
  Communicator group = unchecked_group();
  const int ranks = group.size();
  const Tensor from = numbers(4L * ranks);
  const Tensor to = numbers(4L * ranks);
  std::vector<int64_t> sent(static_cast<size_t>(ranks), 1);
  const std::vector<int64_t> received(static_cast<size_t>(ranks), 1);
  if (group.position() == 1) sent[0] = 3;
  EXPECT_THAT(error_of([&] { group.all_to_all_rows("tokens", from, sent, to, received); }),
              HasSubstr("rank 1 sends 3 rows to rank 0, which receives 1 from it"));
  joined().check_calls(false);
  gather_again();
}

}  // namespace
}  // namespace tessera
