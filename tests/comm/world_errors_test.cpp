#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/world.h"
#include "comm/ranks_and_values.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using OneCall = std::function<void(Communicator&)>;

/// Each rank makes its call; returns what the ranks' errors say.
std::vector<std::string> errors_of(const std::vector<OneCall>& calls,
                                   milliseconds timeout = std::chrono::seconds(60)) {
  const auto ranks = static_cast<int>(calls.size());
  World world(ranks, timeout);
  std::vector<std::string> errors(calls.size());
  run_ranks(world, [&](int rank) {
    Communicator group = world.group(rank, first_ranks(ranks));
    const auto own = static_cast<size_t>(rank);
    errors[own] = error_of([&] { calls[own](group); });
    // It is broken from now on.
    EXPECT_EQ(error_of([&] { group.barrier("later"); }), errors[own]);
  });
  return errors;
}

Tensor zeros(const Shape& shape, DType dtype = DType::f32) {
  Tensor result(shape, dtype);
  result.fill_zero();
  return result;
}

OneCall sum_of(std::string name, const Shape& shape, DType dtype = DType::f32,
               Reduction reduction = Reduction::sum) {
  return [=](Communicator& group) {
    const Tensor value = zeros(shape, dtype);
    group.all_reduce(name, value, value, reduction);
  };
}

OneCall gather(const PieceLayout& layout) {
  return [=](Communicator& group) {
    group.all_gather("weight", layout, zeros(Shape{layout.elements(group.position())}),
                     zeros(Shape{layout.elements()}));
  };
}

OneCall rows(std::vector<int64_t> sent, std::vector<int64_t> received) {
  return [=](Communicator& group) {
    group.all_to_all_rows("tokens", zeros(Shape{9, 2}), sent, zeros(Shape{9, 2}), received);
  };
}

/// Both ranks get the same message, which has both calls.
void expect_disagreement(const OneCall& first, const OneCall& second, const std::string& of_first,
                         const std::string& of_second) {
  const std::vector<std::string> errors = errors_of({first, second});
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("the ranks of group [0, 1] on lane work do not"),
                               HasSubstr(of_first), HasSubstr(of_second)));
}

TEST(WorldErrors, SayWhichRankCalledWhat) {
  expect_disagreement(sum_of("a", {4}), sum_of("b", {4}),
                      "rank 0 made call 0, all_reduce (sum) 'a' of f32 [4]",
                      "rank 1 made call 0, all_reduce (sum) 'b' of f32 [4]");
}

TEST(WorldErrors, FindEachDifference) {
  const OneCall sum = sum_of("a", {4});
  expect_disagreement(sum, sum_of("a", {2, 2}), "f32 [4]", "f32 [2, 2]");
  expect_disagreement(sum, sum_of("a", {5}), "f32 [4]", "f32 [5]");
  expect_disagreement(sum, sum_of("a", {4}, DType::i32), "f32 [4]", "i32 [4]");
  expect_disagreement(sum, sum_of("a", {4}, DType::f32, Reduction::maximum), "(sum)", "(maximum)");
  expect_disagreement(sum, gather(even_pieces(4, 2)), "all_reduce", "all_gather");
  expect_disagreement([](Communicator& group) { group.broadcast("x", 0, zeros(Shape{4})); },
                      [](Communicator& group) { group.broadcast("x", 1, zeros(Shape{4})); },
                      "rank 0 made call 0, broadcast 'x' of f32 [4] from rank 0",
                      "rank 1 made call 0, broadcast 'x' of f32 [4] from rank 1");
  expect_disagreement(gather(even_pieces(4, 2)),
                      gather(pieces_of(Shape{4}, sharded(0, {PieceKind::zigzag}), 2)),
                      "(1 x [4] x 1: 0-1 | 2-3)", "(1 x [4] x 1: 0 3 | 1-2)");
}

/// As many elements of other wholes, or of the same whole in other pieces.
TEST(WorldErrors, FindAllToAllsOfOtherPieces) {
  const auto exchange = [](const Shape& whole, int before, int after, bool in_rows) {
    return [=](Communicator& group) {
      const auto pieces = [&](int dim) { return pieces_of(whole, sharded(dim), 2).hash(); };
      const Repartition what{whole, pieces(before), pieces(after)};
      const Tensor from = zeros(Shape{8}), to = zeros(Shape{8});
      const std::vector<int64_t> rows{4, 4};
      if (in_rows) return group.all_to_all_rows("heads", from, rows, to, rows, what);
      group.all_to_all("heads", from, to, what);
    };
  };
  for (const bool in_rows : {false, true}) {
    expect_disagreement(exchange({4, 4}, 0, 1, in_rows), exchange({2, 8}, 0, 1, in_rows),
                        "'heads' of f32 [4, 4] in pieces", "'heads' of f32 [2, 8] in pieces");
    expect_disagreement(exchange({4, 4}, 0, 1, in_rows), exchange({4, 4}, 1, 0, in_rows),
                        "rank 0 made call 0", "to pieces");
    expect_disagreement(exchange({4, 4}, 0, 0, in_rows), exchange({4, 4}, 0, 1, in_rows),
                        "rank 0 made call 0", "to pieces");
  }
}

TEST(WorldErrors, FindDifferentNumbersOfRows) {
  const std::vector<std::string> errors = errors_of({rows({1, 3}, {1, 2}), rows({2, 0}, {4, 0})});
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("call 0, all_to_all_rows 'tokens' of f32 [1, 2]"),
                               HasSubstr("rank 0 sends 3 rows to rank 1, which receives 4")));
}

TEST(WorldErrors, FindDifferentMessages) {
  const auto sends = [](Communicator& group) { group.send("x", 1, zeros(Shape{4})); };
  for (const auto& [name, elements] : {std::pair{"y", 4}, std::pair{"x", 3}}) {
    const auto receives = [&](Communicator& group) {
      group.receive(name, 0, zeros(Shape{elements}));
    };
    const std::vector<std::string> errors = errors_of({sends, receives});
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_THAT(errors[0],
                AllOf(HasSubstr("rank 0 sends message 0 'x' of f32 [4] from rank 0 to rank 1"),
                      HasSubstr(fmt::format("rank 1 receives message 0 '{}' of f32 [{}]", name,
                                            elements))));
  }
}

/// The third rank never comes, and is not needed to see that the two differ.
TEST(WorldErrors, ADisagreementIsFoundBeforeAllAreThere) {
  World world(3);
  std::vector<std::string> errors(3);
  std::latch found(2);
  run_ranks(world, [&](int rank) {
    Communicator group = world.group(rank, first_ranks(3));
    if (rank == 2) return found.wait();
    errors[static_cast<size_t>(rank)] =
        error_of([&] { sum_of(rank == 0 ? "a" : "b", {1})(group); });
    found.count_down();
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], HasSubstr("do not make the same call"));
}

/// Each of two calls, made by two ranks of which one comes later, in both orders.
void expect_no_wait(const OneCall& first, const OneCall& second, const std::string& of_first,
                    const std::string& of_second) {
  for (const bool second_is_late : {false, true}) {
    const auto late = [](const OneCall& call, bool is_late) {
      return [=](Communicator& group) {
        if (is_late) std::this_thread::sleep_for(milliseconds(20));
        call(group);
      };
    };
    expect_disagreement(late(first, !second_is_late), late(second, second_is_late), of_first,
                        of_second);
  }
}

TEST(WorldErrors, ARankThatWaitsForAMessageIsNotWaitedForInACollective) {
  const OneCall waits = [](Communicator& group) { group.barrier("all"); };
  const std::string waited = "rank 0 made call 0, barrier 'all'";
  const auto sends = [](Communicator& group) { group.send("x", 0, zeros(Shape{4})); };
  expect_no_wait(waits, sends, waited,
                 "rank 1 made message 0 'x' of f32 [4] from rank 1 to rank 0");
  const auto receives = [](Communicator& group) { group.receive("x", 0, zeros(Shape{4})); };
  expect_no_wait(waits, receives, waited,
                 "rank 1 made message 0 'x' of f32 [4] from rank 0 to rank 1");
}

/// Of two messages to be received, the one that comes first is not that of the rank that waits.
TEST(WorldErrors, TheLastOfSeveralMessagesIsComparedToo) {
  const auto with_both = [](Communicator& group) {
    const Message receives[] = {{.peer = 1, .tensor = zeros(Shape{1})},
                                {.peer = 2, .tensor = zeros(Shape{1})}};
    group.exchange("x", {}, receives);
  };
  const auto sends = [](Communicator& group) {
    std::this_thread::sleep_for(milliseconds(20));
    group.send("x", 0, zeros(Shape{1}));
    group.barrier("all");
  };
  const OneCall waits = [](Communicator& group) { group.barrier("all"); };
  for (const std::string& error : errors_of({with_both, sends, waits})) {
    EXPECT_THAT(error, AllOf(HasSubstr("rank 2 made call 0, barrier 'all'"),
                             HasSubstr("rank 0 made message 0 'x' of f32 [1] from rank 2")));
  }
}

/// Other ranks may exchange messages while one waits for all.
TEST(WorldErrors, MessagesOfOthersAreNoneOfACollective) {
  World world(3);
  run_ranks(world, [&](int rank) {
    Communicator group = world.group(rank, first_ranks(3));
    for (int turn = 0; turn < 20; ++turn) {
      const Tensor value = zeros(Shape{1});
      if (rank == 0) group.send("x", 1, value);
      if (rank == 1) group.receive("x", 0, value);
      group.barrier("all");
    }
  });
}

/// Nobody waits for a rank that has returned, whether it did so before the call or during it.
TEST(WorldErrors, ARankThatHasEndedIsNotWaitedFor) {
  for (const bool ends_late : {false, true}) {
    for (const bool by_message : {false, true}) {
      World world(3, std::chrono::seconds(5));
      std::vector<std::string> errors(3);
      run_ranks(world, [&](int rank) {
        const auto own = static_cast<size_t>(rank);
        if (rank != 2 && !ends_late) std::this_thread::sleep_for(milliseconds(20));
        Communicator group = world.group(rank, first_ranks(3), rank == 2 ? "other" : "work");
        if (rank == 2 && ends_late) std::this_thread::sleep_for(milliseconds(20));
        if (rank == 2) return;
        errors[own] = error_of([&] {
          if (rank == 1 && by_message) return group.receive("x", 2, zeros(Shape{4}));
          group.barrier("all");
        });
      });
      EXPECT_EQ(errors[0], errors[1]);
      EXPECT_THAT(errors[0], AllOf(HasSubstr(" of group [0, 1, 2] on lane work: rank 2 ended "
                                             "without it. Rank 2 has not made any call"),
                                   HasSubstr("must make the same calls")));
    }
  }
}

/// A group in which the ended rank is not goes on.
TEST(WorldErrors, ARankThatHasEndedMakesNoErrorElsewhere) {
  World world(3);
  run_ranks(world, [&](int rank) {
    if (rank == 2) return;
    Communicator group = world.group(rank, first_ranks(2));
    for (int turn = 0; turn < 200; ++turn) group.barrier("both");
  });
}

TEST(WorldErrors, EachFieldOfAFingerprintCounts) {
  const Fingerprint mark{.name = "x", .collective = Collective::all_reduce, .shape = Shape{2}};
  const auto differs = [&](auto change) {
    Fingerprint other = mark;
    change(other);
    return other != mark && (other.text() != mark.text());
  };
  EXPECT_TRUE(differs([](Fingerprint& other) { other.name = "y"; }));
  EXPECT_TRUE(differs([](Fingerprint& other) { other.collective = Collective::broadcast; }));
  EXPECT_TRUE(differs([](Fingerprint& other) { other.sequence = 1; }));
  EXPECT_TRUE(differs([](Fingerprint& other) { other.dtype = DType::f64; }));
  EXPECT_TRUE(differs([](Fingerprint& other) { other.shape = Shape{1, 2}; }));
  EXPECT_TRUE(differs([](Fingerprint& other) { other.reduction = Reduction::maximum; }));
  EXPECT_TRUE(differs([](Fingerprint& other) { other.from = 0; }));
  EXPECT_TRUE(differs([](Fingerprint& other) { other.to = 0; }));
  EXPECT_TRUE(differs([](Fingerprint& other) { other.layout = 1; }));
}

TEST(WorldErrors, NameTheRankThatDoesNotCome) {
  World world(4, milliseconds(500));
  std::vector<std::string> errors(4);
  std::latch failed(2);
  run_ranks(world, [&](int rank) {
    if (rank == 3) return;
    Communicator group = world.group(rank, first_ranks(3));
    sum_of("first", {4})(group);
    if (rank == 2) return failed.wait();
    errors[static_cast<size_t>(rank)] = error_of([&] { sum_of("second", {8})(group); });
    failed.count_down();
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(
      errors[0],
      StartsWith("call 1, all_reduce (sum) 'second' of f32 [8] of group [0, 1, 2] on lane work: "
                 "after 0.5 s (run.rank_timeout; of a benchmark, --rank-timeout), ranks 0, 1 "
                 "waited and rank "
                 "2 did not come. Rank 2 last finished "
                 "call 0, all_reduce (sum) 'first' of f32 [4] of group [0, 1, 2] on lane work"));
}

/// The missing rank waits elsewhere: the message says where.
TEST(WorldErrors, SayWhereAMissingRankWaits) {
  World world(3, milliseconds(1000));
  std::vector<std::string> errors(3);
  std::latch failed(2);
  run_ranks(world, [&](int rank) {
    const std::vector<int> pair = rank == 0 ? std::vector{0, 1} : std::vector{1, 2};
    if (rank == 2) return failed.wait();
    Communicator unused = world.group(rank, std::vector{0, 1}, "other");
    Communicator group = world.group(rank, pair);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
    errors[static_cast<size_t>(rank)] = error_of([&] { sum_of("mine", {1})(group); });
    failed.count_down();
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 0 waited and rank 1 did not come"),
                               HasSubstr("Rank 1 waits in call 0, all_reduce (sum) 'mine' of f32 "
                                         "[1] of group [1, 2]")));
  EXPECT_THAT(errors[1], HasSubstr("Rank 2 has not made any call"));
}

TEST(WorldErrors, NameTheRankThatDoesNotSendOrReceive) {
  for (const int absent : {0, 1}) {
    World world(2, milliseconds(50));
    std::atomic<bool> ended = false;
    std::string error;
    run_ranks(world, [&](int rank) {
      Communicator group = world.group(rank, first_ranks(2));
      if (rank == absent) return ended.wait(false);
      error = error_of([&] {
        if (rank == 0) group.send("x", 1, zeros(Shape{2}));
        if (rank == 1) group.receive("x", 0, zeros(Shape{2}));
      });
      ended = true;
      ended.notify_one();
    });
    EXPECT_THAT(error, StartsWith(fmt::format(
                           "message 0 'x' of f32 [2] from rank 0 to rank 1 of group [0, 1] on lane "
                           "work: after 0.05 s (run.rank_timeout; of a benchmark, --rank-timeout), "
                           "rank {} waited and rank {} did not come. Rank {} has not made any call",
                           1 - absent, absent, absent)));
  }
}

struct OutOfLuck : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The rank that fails is in none of the calls that the others wait in.
TEST(WorldErrors, ARankThatThrowsWakesTheOthers) {
  World world(4);
  std::vector<std::string> errors(4);
  std::latch ready(4);
  const auto run = [&](int rank) {
    if (rank == 3) {
      ready.arrive_and_wait();
      std::this_thread::sleep_for(milliseconds(30));
      throw OutOfLuck("no luck");
    }
    // Ranks 0 and 1 wait in a collective and in a message, and rank 2 for a message.
    Communicator group = world.group(rank, rank == 2 ? std::vector{2, 3} : std::vector{0, 1, 3});
    ready.arrive_and_wait();
    errors[static_cast<size_t>(rank)] = error_of([&] {
      if (rank == 2) group.receive("x", 1, zeros(Shape{1}));
      if (rank == 1) group.send("x", 2, zeros(Shape{1}));
      group.barrier("wait");
    });
    throw Error(errors[static_cast<size_t>(rank)]);
  };
  EXPECT_THROW(run_ranks(world, run), OutOfLuck);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)], "rank 3 failed: no luck");
  }
  EXPECT_EQ(error_of([&] { world.group(0, std::vector{0}); }), "rank 3 failed: no luck");
}

/// Ranks fail while others copy from them: nobody's memory goes while another reads it. The
/// sanitizers see that it does not.
TEST(WorldErrors, MemoryStaysWhileOthersReadIt) {
  for (int turn = 0; turn < 60; ++turn) {
    World world(4);
    const auto run = [&](int rank) {
      if (rank == 3) {
        std::this_thread::sleep_for(std::chrono::microseconds(100 * turn));
        throw OutOfLuck("no luck");
      }
      Communicator group = world.group(rank, first_ranks(3));
      for (int64_t step = 0;; ++step) {
        const Tensor value = zeros(Shape{20000});
        group.all_reduce("sum", value, value);
        const Tensor other = zeros(Shape{20000});
        const Message send{.peer = (rank + 1) % 3, .tensor = value};
        const Message receive{.peer = (rank + 2) % 3, .tensor = other};
        group.exchange("ring", std::span(&send, 1), std::span(&receive, 1));
      }
    };
    EXPECT_THROW(run_ranks(world, run), OutOfLuck);
  }
}

TEST(WorldErrors, ARankWithAnInternalErrorIsNotTakenForItsConsequence) {
  World world(2);
  EXPECT_THROW(run_ranks(world,
                         [&](int rank) {
                           Communicator group = world.group(rank, first_ranks(2));
                           const Tensor bytes(Shape{4}, DType::u8);
                           if (rank == 1) group.all_reduce("x", bytes, bytes);
                           group.barrier("wait");
                         }),
               InternalError);
}

/// Transports of two ranks make calls with one mark, which do not read each other's memory: blocks
/// of other sizes, and a call whose bytes devices move.
TEST(WorldErrors, FindOtherMemoryBehindOneMark) {
  const Tensor four({4}, DType::f32);
  const Tensor eight({8}, DType::f32);
  const std::vector<int64_t> one_each{1, 1};
  const Fingerprint blocks{
      .name = "blocks", .collective = Collective::all_to_all, .dtype = DType::f32};
  const Fingerprint sum{
      .name = "sum", .collective = Collective::all_reduce, .dtype = DType::f32, .shape = Shape{4}};
  const auto error = [](const auto& first, const auto& second) {
    World world(2);
    std::string result;
    run_ranks(world, [&](int rank) {
      const auto moves = world.transport(rank, first_ranks(2), "network");
      const std::string own = error_of([&] { rank == 0 ? first(*moves) : second(*moves); });
      if (rank == 0) result = own;
    });
    return result;
  };
  const auto exchange = [&](const Tensor& to) {
    return [&blocks, &one_each, to](Transport& moves) {
      moves.make({.mark = blocks,
                  .moves = Collective::all_to_all,
                  .from = to,
                  .to = to,
                  .sent = one_each,
                  .received = one_each,
                  .row_elements = to.elements() / 2});
    };
  };
  EXPECT_THAT(error(exchange(four), exchange(eight)),
              AllOf(HasSubstr("in blocks of 8 bytes"), HasSubstr("in blocks of 16 bytes")));
  EXPECT_THAT(error(
                  [&](Transport& moves) {
                    moves.make({sum, Collective::all_reduce, nullptr, four, four});
                  },
                  [&](Transport& moves) { moves.make({.mark = sum}); }),
              HasSubstr("whose bytes devices move"));
}

TEST(WorldErrors, AGroupHasOneOrder) {
  World world(2);
  const Communicator first = world.group(0, std::vector{0, 1});
  EXPECT_EQ(error_of([&] {
              world.group(1, std::vector{1, 0});
            }),
            "rank 1 asks for the group [1, 0] on lane work, but rank 0 asked for [0, 1]; all "
            "ranks of a group must list them in the same order");
  const Communicator other = world.group(1, std::vector{1, 0}, "compute");
  EXPECT_THROW(world.group(0, std::vector{0, 1}), InternalError);
  EXPECT_THROW(world.group(0, std::vector{1}), InternalError);
  EXPECT_THROW(world.group(0, std::vector{0, 2}), InternalError);
  EXPECT_THROW(world.group(0, std::vector{0, 0}), InternalError);
}

/// A rank that is early waits for the others in the next group, and does not meet them in the last.
TEST(WorldErrors, ARankThatHasLeftAGroupMayAskForItAgain) {
  constexpr int kTimes = 50;
  World world(3);
  std::vector<int64_t> calls(3);
  run_ranks(world, [&](int rank) {
    for (int time = 0; time < kTimes; ++time) {
      Communicator group = world.group(rank, first_ranks(3));
      const Tensor sum({1}, DType::i32);
      sum.data<int32_t>()[0] = time;
      group.all_reduce("sum", sum, sum);
      EXPECT_EQ(sum.data<int32_t>()[0], 3 * time);
      calls[static_cast<size_t>(rank)] += group.traffic(Collective::all_reduce).calls;
    }
  });
  EXPECT_EQ(calls, std::vector<int64_t>(3, kTimes));
  EXPECT_EQ(world.last_calls(0).size(), 1) << "groups that all have left are kept";
}

}  // namespace
}  // namespace tessera
