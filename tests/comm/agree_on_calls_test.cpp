#include "comm/agree_on_calls.h"

#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/ranks_and_values.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Write = std::function<void(CallList&)>;

/// Each rank of a group agrees on the list that it writes in one part, which runs once. Returns
/// what the ranks' errors say.
std::vector<std::string> errors_of(const std::vector<Write>& lists) {
  std::vector<std::string> errors(lists.size());
  run_group(static_cast<int>(lists.size()), [&](Communicator& group) {
    const auto own = static_cast<size_t>(group.position());
    CallList list(first_ranks(group.size()), group.position());
    list.run(list.begin_part());
    lists[own](list);
    try {
      agree_on_calls(group, list);
    } catch (const Error& error) {
      errors[own] = error.what();
    }
  });
  return errors;
}

/// Returns the texts that both errors must have: the first call of each rank that differs.
auto differ(const std::string& first, const std::string& second) {
  return Each(AllOf(HasSubstr("would not make the same calls"),
                    HasSubstr(fmt::format("rank 0 would make {};", first)),
                    HasSubstr(fmt::format("rank 1 would make {}.", second))));
}

void sum(CallList& list, std::string_view name = "x", const Shape& shape = {4}) {
  list.all_reduce(name, DType::f32, shape);
}

TEST(ListsOfCalls, ThatAreEqualAreAccepted) {
  const Write write = [](CallList& list) {
    sum(list);
    list.all_gather("y", even_pieces(6, 3), DType::bf16, {6});
    list.all_to_all_rows("rows", DType::f32, {1, 5});
  };
  EXPECT_THAT(errors_of({write, write, write}), Each(""));
}

TEST(ListsOfCalls, ThatDifferInANameAreRefused) {
  EXPECT_THAT(
      errors_of({[](CallList& list) { sum(list), sum(list, "y"); },
                 [](CallList& list) { sum(list), sum(list, "z"); }}),
      differ("call 1, all_reduce (sum) 'y' of f32 [4]", "call 1, all_reduce (sum) 'z' of f32 [4]"));
}

TEST(ListsOfCalls, ThatDifferInTheKindOfCallAreRefused) {
  EXPECT_THAT(
      errors_of({[](CallList& list) { sum(list); },
                 [](CallList& list) { list.all_to_all("x", DType::f32, {4}); }}),
      differ("call 0, all_reduce (sum) 'x' of f32 [4]", "call 0, all_to_all 'x' of f32 [4]"));
}

TEST(ListsOfCalls, ThatDifferInAShapeAreRefused) {
  EXPECT_THAT(errors_of({[](CallList& list) { sum(list); },
                         [](CallList& list) {
                           sum(list, "x", {2, 2});
                         }}),
              differ("call 0, all_reduce (sum) 'x' of f32 [4]",
                     "call 0, all_reduce (sum) 'x' of f32 [2, 2]"));
}

TEST(ListsOfCalls, ThatDifferInATypeAreRefused) {
  EXPECT_THAT(
      errors_of({[](CallList& list) { list.all_reduce("x", DType::f64, {4}); },
                 [](CallList& list) { sum(list); }}),
      differ("call 0, all_reduce (sum) 'x' of f64 [4]", "call 0, all_reduce (sum) 'x' of f32 [4]"));
}

TEST(ListsOfCalls, ThatDifferInAReductionAreRefused) {
  EXPECT_THAT(
      errors_of({[](CallList& list) { list.all_reduce("x", DType::f32, {4}, Reduction::maximum); },
                 [](CallList& list) { sum(list); }}),
      differ("call 0, all_reduce (maximum) 'x' of f32 [4]",
             "call 0, all_reduce (sum) 'x' of f32 [4]"));
  EXPECT_THAT(
      errors_of(
          {[](CallList& list) { list.reduce_scatter("x", even_pieces(4, 2), DType::f32, {4}); },
           [](CallList& list) {
             list.reduce_scatter("x", even_pieces(4, 2), DType::f32, {4}, Reduction::unordered_sum);
           }}),
      Each(AllOf(HasSubstr("rank 0 would make call 0, reduce_scatter (sum) 'x'"),
                 HasSubstr("rank 1 would make call 0, reduce_scatter (sum in any order) "
                           "'x'"))));
}

TEST(ListsOfCalls, ThatDifferInPiecesAreRefused) {
  const auto errors = errors_of(
      {[](CallList& list) { list.reduce_scatter("x", even_pieces(4, 2), DType::f32, {4}); },
       [](CallList& list) {
         list.reduce_scatter("x", PieceLayout(1, 4, 1, {{{0, 1}}, {{1, 3}}}), DType::f32, {4});
       }});
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 0 would make call 0, reduce_scatter (sum) 'x'"),
                                 HasSubstr("rank 1 would make call 0, reduce_scatter (sum) 'x'"))));
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(ListsOfCalls, ThatDifferInTheOrderAreRefused) {
  EXPECT_THAT(
      errors_of({[](CallList& list) { sum(list), sum(list, "y"); },
                 [](CallList& list) { sum(list, "y"), sum(list); }}),
      differ("call 0, all_reduce (sum) 'x' of f32 [4]", "call 0, all_reduce (sum) 'y' of f32 [4]"));
}

TEST(ListsOfCalls, OfDifferentLengthsAreRefused) {
  EXPECT_THAT(errors_of({[](CallList& list) { sum(list); },
                         [](CallList& list) { sum(list), sum(list, "y"); }}),
              differ("no more calls", "call 1, all_reduce (sum) 'y' of f32 [4]"));
  EXPECT_THAT(errors_of({[](CallList& list) { sum(list); }, [](CallList&) {}}),
              differ("call 0, all_reduce (sum) 'x' of f32 [4]", "no more calls"));
}

TEST(ListsOfCalls, WhoseMessagesDifferAreRefused) {
  const auto send = [](CallList& list) { list.send("m", 1, DType::f32, {4}); };
  EXPECT_THAT(errors_of({send, [](CallList& list) { list.receive("m", 0, DType::f32, {4}); }}),
              Each(""));
  const std::string sent = "message 0 'm' of f32 [4] from rank 0 to rank 1";
  const std::string none = "no more messages from rank 0 to rank 1";
  EXPECT_THAT(errors_of({send, [](CallList& list) { list.receive("n", 0, DType::f32, {4}); }}),
              differ(sent, "message 0 'n' of f32 [4] from rank 0 to rank 1"));
  EXPECT_THAT(errors_of({send, [](CallList& list) { list.receive("m", 0, DType::f32, {5}); }}),
              differ(sent, "message 0 'm' of f32 [5] from rank 0 to rank 1"));
  EXPECT_THAT(errors_of({send, [](CallList&) {}}), differ(sent, none));
  // A message that is expected, but never sent.
  EXPECT_THAT(
      errors_of({[](CallList&) {}, [](CallList& list) { list.receive("m", 0, DType::f32, {4}); }}),
      differ(none, sent));
}

TEST(ListsOfCalls, MayOrderTheMessagesOfDifferentRanksDifferently) {
  const auto exchange = [](int first, int second) {
    return [=](CallList& list) {
      for (const int peer : {first, second}) {
        list.receive("m", peer, DType::f32, {4});
        list.send("m", peer, DType::f32, {4});
      }
    };
  };
  EXPECT_THAT(errors_of({exchange(1, 2), exchange(2, 0), exchange(1, 0)}), Each(""));
}

TEST(ListsOfCalls, WithPartsThatRunSeveralTimesAreComparedAsTheyRun) {
  const auto write = [](bool last_runs_twice) {
    return [=](CallList& list) {
      const int forward = list.begin_part();
      sum(list, "forward");
      const int backward = list.begin_part();
      sum(list, "backward");
      for (const int part : {forward, backward, forward}) list.run(part);
      list.run(last_runs_twice ? forward : backward);
    };
  };
  EXPECT_THAT(errors_of({write(false), write(false)}), Each(""));
  EXPECT_THAT(errors_of({write(false), write(true)}),
              differ("call 3, all_reduce (sum) 'backward' of f32 [4]",
                     "call 3, all_reduce (sum) 'forward' of f32 [4]"));
}

TEST(ListsOfCalls, NameTheFirstRankThatDiffersToAllRanks) {
  const Write same = [](CallList& list) { sum(list); };
  const auto errors =
      errors_of({same, same, [](CallList& list) { sum(list, "y"); }, [](CallList&) {}});
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("the programs of ranks 0, 1, 2, 3"),
                                 HasSubstr("rank 0 would make call 0, all_reduce (sum) 'x'"),
                                 HasSubstr("rank 2 would make call 0, all_reduce (sum) 'y'"))));
}

/// A list of random calls as texts, of which one is changed: what the search finds is compared with
/// what a walk through both lists finds.
TEST(ListsOfCalls, OfAnyLengthAreSearchedForTheFirstDifference) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const auto length = 1 + static_cast<size_t>(random() % 40);
    std::vector<std::string> names;
    for (size_t i = 0; i < length; ++i) names.push_back(fmt::format("n{}", random() % 3));
    const size_t changed = random() % length;
    const auto write = [&](bool changes) {
      return [&, changes](CallList& list) {
        for (size_t i = 0; i < length; ++i) {
          const bool differs = changes && (i == changed || (i > changed && random() % 2 == 0));
          sum(list, differs ? "other" : names[i]);
        }
      };
    };
    const auto errors = errors_of({write(false), write(true)});
    EXPECT_THAT(
        errors,
        differ(fmt::format("call {}, all_reduce (sum) '{}' of f32 [4]", changed, names[changed]),
               fmt::format("call {}, all_reduce (sum) 'other' of f32 [4]", changed)));
  }
}

TEST(ListsOfCalls, MayTakeThePlaceOfEarlierOnes) {
  run_group(2, [](Communicator& group) {
    const Tensor value({4}, DType::f32);
    value.fill_zero();
    for (const std::string name : {"x", "y"}) {
      CallList list(first_ranks(2), group.position());
      list.run(list.begin_part());
      sum(list, name);
      agree_on_calls(group, list);
      group.all_reduce(name, value, value);
    }
    EXPECT_THROW(group.all_reduce("x", value, value), InternalError);
  });
}

TEST(ListsOfCalls, AreAllThatTheCommunicatorTakesAfterwards) {
  run_group(2, [](Communicator& group) {
    CallList list(first_ranks(2), group.position());
    list.run(list.begin_part());
    sum(list);
    agree_on_calls(group, list);
    const Tensor value({4}, DType::f32);
    value.fill_zero();
    for (int i = 0; i < 2; ++i) group.all_reduce("x", value, value);
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { group.all_reduce("y", value, value); },
             [&] { group.all_reduce("x", value, value, Reduction::maximum); },
             [&] {
               group.all_reduce("x", value.reshape({2, 2}), value.reshape({2, 2}));
             },
             [&] { group.barrier("x"); }, [&] { group.send("x", 1 - group.position(), value); }}) {
      EXPECT_THAT(call, ThrowsMessage<InternalError>(HasSubstr(
                            "is not in the list of calls on which the ranks 0, 1 have agreed")));
    }
  });
}

}  // namespace
}  // namespace tessera
