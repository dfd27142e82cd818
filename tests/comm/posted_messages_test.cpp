// Messages that are posted and awaited later, among ranks that are threads.
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "comm/posted_message.h"
#include "comm/posted_programs.h"
#include "comm/ranks_and_values.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using OneRank = std::function<void(Communicator&)>;

/// Each rank does its work; returns what its error says, or nothing.
std::vector<std::string> errors_of_ranks(const std::vector<OneRank>& work,
                                         milliseconds timeout = std::chrono::seconds(60)) {
  const auto ranks = static_cast<int>(work.size());
  World world(ranks, timeout);
  std::vector<std::string> errors(work.size());
  run_ranks(world, [&](int rank) {
    Communicator group = world.group(rank, first_ranks(ranks));
    try {
      work[static_cast<size_t>(rank)](group);
    } catch (const Error& error) {
      errors[static_cast<size_t>(rank)] = error.what();
    }
  });
  return errors;
}

OneRank sends(std::string name, int peer, const Shape& shape) {
  return [=](Communicator& group) {
    PostedMessage message = group.post_send(name, peer, random_tensor(shape, DType::f32, 1));
    group.wait(message);
  };
}

OneRank receives(std::string name, int peer, const Shape& shape) {
  return [=](Communicator& group) {
    PostedMessage message = group.post_receive(name, peer, Tensor(shape, DType::f32));
    group.wait(message);
  };
}

TEST(PostedMessages, ManyAreUnderWayInBothDirections) {
  constexpr int kMessages = 100;
  run_group(2, [&](Communicator& group) {
    const int own = group.position();
    const int peer = 1 - own;
    std::vector<PostedMessage> messages;
    std::vector<Tensor> received;
    const auto contents = [](int from, int i) {
      return random_tensor({i * 37}, DType::f32, 1000 * from + i);
    };
    for (int i = 0; i < kMessages; ++i) {
      received.emplace_back(Shape{i * 37}, DType::f32);
      messages.push_back(group.post_send("out", peer, contents(own, i)));
    }
    for (int i = 0; i < kMessages; ++i) {
      messages.push_back(
          group.post_receive(std::string("out"), peer, received[static_cast<size_t>(i)]));
    }
    for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
      EXPECT_TRUE(message->is_posted());
      group.wait(*message);
      EXPECT_FALSE(message->is_posted());
    }
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_EQ(bytes_of(received[static_cast<size_t>(i)]), bytes_of(contents(peer, i)));
    }
  });
}

RC_GTEST_PROP(PostedMessages, ArriveInAnyProgramWithoutADeadlock, ()) {
  const int ranks = *rc::gen::inRange(1, 5);
  const PostedProgram program = any_posted_program(ranks, *rc::gen::arbitrary<uint32_t>());
  std::vector<std::map<size_t, std::string>> received(static_cast<size_t>(ranks));
  run_group(ranks, [&](Communicator& group) {
    received[static_cast<size_t>(group.position())] = run_posted(program, group);
  });
  for (int rank = 0; rank < ranks; ++rank) {
    RC_ASSERT(received[static_cast<size_t>(rank)] == expected_of(program, rank));
  }
}

/// The rank that has only posted waits for the other by other means.
TEST(PostedMessages, AWaitNeedsOnlyThePostOfTheOther) {
  for (const bool sender_waits_first : {true, false}) {
    const Tensor sent = random_tensor({5000}, DType::f32, 3);
    const Tensor received({5000}, DType::f32);
    std::latch has_moved(1);
    run_group(2, [&](Communicator& group) {
      const bool sender = group.position() == 0;
      PostedMessage message =
          sender ? group.post_send("x", 1, sent) : group.post_receive("x", 0, received);
      if (sender != sender_waits_first) has_moved.wait();
      group.wait(message);
      if (sender == sender_waits_first) has_moved.count_down();
    });
    EXPECT_EQ(bytes_of(received), bytes_of(sent));
  }
}

/// Posted messages and those of the calls that wait are of one order.
TEST(PostedMessages, MatchThoseThatAreNotPosted) {
  std::vector<double> results;
  run_group(2, [&](Communicator& group) {
    const auto number = [](double value) {
      const Tensor result({1}, DType::f64);
      set(result, 0, value);
      return result;
    };
    if (group.position() == 0) {
      PostedMessage first = group.post_send("a", 1, number(1));
      group.send("b", 1, number(2));
      PostedMessage third = group.post_send("c", 1, number(3));
      group.wait(third);
      group.wait(first);
      return;
    }
    const Tensor first = number(0), second = number(0), third = number(0);
    PostedMessage posted_first = group.post_receive("a", 0, first);
    PostedMessage posted_second = group.post_receive("b", 0, second);
    group.receive("c", 0, third);
    group.wait(posted_second);
    group.wait(posted_first);
    results = {get(first, 0), get(second, 0), get(third, 0)};
  });
  EXPECT_EQ(results, (std::vector<double>{1, 2, 3}));
}

TEST(PostedMessages, ToTheRankItself) {
  run_group(1, [](Communicator& group) {
    const Tensor sent = random_tensor({9}, DType::f32, 1);
    const Tensor received({9}, DType::f32);
    PostedMessage out = group.post_send("x", 0, sent);
    EXPECT_THROW(group.wait(out), InternalError) << "nobody else posts the other side";
    PostedMessage in = group.post_receive("x", 0, received);
    group.wait(out);
    group.wait(in);
    EXPECT_EQ(bytes_of(received), bytes_of(sent));
    EXPECT_EQ(group.traffic(Collective::message).received_bytes, 0);
    EXPECT_THROW(group.wait(in), InternalError) << "it is awaited";
  });
}

TEST(PostedMessages, CountWhenTheyHaveArrived) {
  run_group(2, [](Communicator& group) {
    const Tensor value({6}, DType::f32);
    const bool sender = group.position() == 0;
    PostedMessage message =
        sender ? group.post_send("x", 1, value) : group.post_receive("x", 0, value);
    group.barrier("both");
    EXPECT_EQ(group.traffic(Collective::message).calls, 0);
    EXPECT_EQ(group.traffic(Collective::message).received_bytes, 0);
    group.wait(message);
    EXPECT_EQ(group.traffic(Collective::message).calls, 1);
    EXPECT_EQ(group.traffic(Collective::message).received_bytes, sender ? 0 : 24);
    EXPECT_EQ(group.traffic(Collective::barrier).received_bytes, 0);
  });
}

/// Both ranks know who posted what, whichever posts last.
TEST(PostedMessages, ThatDifferAreNamedOnBothSides) {
  for (const auto& [name, elements] : {std::pair{"y", 4}, std::pair{"x", 3}}) {
    for (const bool sender_is_late : {false, true}) {
      std::latch posted(1);
      const auto in_turn = [&](const OneRank& work, bool is_late) {
        return [&, work, is_late](Communicator& group) {
          if (is_late) posted.wait();
          work(group);
        };
      };
      const auto posts = [&](Communicator& group, PostedMessage message, bool is_late) {
        if (!is_late) posted.count_down();
        group.wait(message);
      };
      const std::vector<std::string> errors = errors_of_ranks(
          {in_turn(
               [&](Communicator& group) {
                 posts(group, group.post_send("x", 1, Tensor({4}, DType::f32)), sender_is_late);
               },
               sender_is_late),
           in_turn(
               [&](Communicator& group) {
                 posts(group, group.post_receive(name, 0, Tensor({elements}, DType::f32)),
                       !sender_is_late);
               },
               !sender_is_late)});
      EXPECT_EQ(errors[0], errors[1]);
      EXPECT_THAT(errors[0],
                  AllOf(HasSubstr("rank 0 sends message 0 'x' of f32 [4] from rank 0 to rank 1"),
                        HasSubstr(fmt::format("rank 1 receives message 0 '{}' of f32 [{}]", name,
                                              elements))));
    }
  }
}

TEST(PostedMessages, AreNotAwaitedByARankWhoseOtherIsInACollective) {
  const OneRank waits = [](Communicator& group) { group.barrier("all"); };
  for (const bool waits_late : {false, true}) {
    const auto late = [](const OneRank& work, bool is_late) {
      return [=](Communicator& group) {
        if (is_late) std::this_thread::sleep_for(milliseconds(20));
        work(group);
      };
    };
    for (const OneRank& message : {sends("x", 0, {4}), receives("x", 0, {4})}) {
      const auto errors = errors_of_ranks({late(waits, waits_late), late(message, !waits_late)});
      EXPECT_EQ(errors[0], errors[1]);
      EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 0 made call 0, barrier 'all'"),
                                   HasSubstr("rank 1 made message 0 'x' of f32 [4] from rank")));
    }
  }
}

/// A rank that has posted its side may be in a collective: the other's wait ends.
TEST(PostedMessages, MoveWhileOneRankIsInACollective) {
  const Tensor sent = random_tensor({100}, DType::f32, 3);
  const Tensor received({100}, DType::f32);
  for (const auto& error : errors_of_ranks({[&](Communicator& group) {
                                              PostedMessage message = group.post_send("x", 1, sent);
                                              group.barrier("all");
                                              group.wait(message);
                                            },
                                            [&](Communicator& group) {
                                              std::this_thread::sleep_for(milliseconds(20));
                                              PostedMessage message =
                                                  group.post_receive("x", 0, received);
                                              group.wait(message);
                                              group.barrier("all");
                                            }})) {
    EXPECT_EQ(error, "");
  }
  EXPECT_EQ(bytes_of(received), bytes_of(sent));
}

TEST(PostedMessages, NameTheRankThatDoesNotPost) {
  std::latch failed(1);
  const auto errors =
      errors_of_ranks({[&](Communicator& group) {
                         PostedMessage first = group.post_receive("x", 1, Tensor({2}, DType::f32));
                         PostedMessage second = group.post_receive("y", 1, Tensor({2}, DType::f32));
                         group.wait(first);
                         try {
                           group.wait(second);
                         } catch (...) {
                           failed.count_down();
                           throw;
                         }
                       },
                       [&](Communicator& group) {
                         group.send("x", 0, Tensor({2}, DType::f32));
                         failed.wait();
                       }},
                      milliseconds(50));
  EXPECT_THAT(errors[0],
              StartsWith("message 1 'y' of f32 [2] from rank 1 to rank 0 of group [0, 1] on lane "
                         "work: after 0.05 s (run.rank_timeout; of a benchmark, "
                         "--rank-timeout), rank 0 waited and rank 1 did not come. Rank 1 last "
                         "finished message 0 'x' of f32 [2] from rank 1 to rank 0"));
}

TEST(PostedMessages, OfARankThatHasEndedAreNotAwaited) {
  const auto errors = errors_of_ranks({receives("x", 1, {4}), [](Communicator&) {}});
  EXPECT_THAT(errors[0], AllOf(StartsWith("message 0 'x' of f32 [4] from rank 1 to rank 0"),
                               HasSubstr("rank 1 ended without it")));
}

struct NoLuck : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// It posts messages that others wait for, and fails: they learn why.
TEST(PostedMessages, OfARankThatThrowsAreNotAwaited) {
  World world(3);
  std::vector<std::string> errors(3);
  std::latch joined(3);
  const auto run = [&](int rank) {
    Communicator group = world.group(rank, first_ranks(3));
    joined.arrive_and_wait();
    const Tensor value({4}, DType::f32);
    if (rank == 2) {
      PostedMessage out = group.post_send("x", 1, value);
      PostedMessage in = group.post_receive("y", 0, value);
      throw NoLuck("no luck");
    }
    errors[static_cast<size_t>(rank)] = error_of([&] {
      for (;;) {  // the first one may arrive
        PostedMessage message =
            rank == 0 ? group.post_send("y", 2, value) : group.post_receive("x", 2, value);
        group.wait(message);
      }
    });
    throw Error(errors[static_cast<size_t>(rank)]);
  };
  EXPECT_THROW(run_ranks(world, run), NoLuck);
  EXPECT_EQ(errors[0], "rank 2 failed: no luck");
  EXPECT_EQ(errors[1], "rank 2 failed: no luck");
}

TEST(PostedMessages, ThatAreWithdrawnAreAnErrorOfTheOther) {
  for (const bool other_posts_first : {false, true}) {
    std::latch other_posted(1), withdrawn(1), ended(1);
    std::string later;
    const auto errors =
        errors_of_ranks({[&](Communicator& group) {
                           const Tensor value = random_tensor({4}, DType::f32, 1);
                           if (other_posts_first) other_posted.wait();
                           std::optional<PostedMessage> first = group.post_send("x", 1, value);
                           PostedMessage second = group.post_send("y", 1, value);
                           first.reset();
                           withdrawn.count_down();
                           group.wait(second);
                           ended.wait();
                         },
                         [&](Communicator& group) {
                           if (!other_posts_first) withdrawn.wait();
                           const Tensor value({4}, DType::f32), next({4}, DType::f32);
                           PostedMessage first = group.post_receive("x", 0, value);
                           other_posted.count_down();
                           PostedMessage second = group.post_receive("y", 0, next);
                           withdrawn.wait();
                           group.wait(second);
                           EXPECT_EQ(bytes_of(next), bytes_of(random_tensor({4}, DType::f32, 1)));
                           const std::string error = error_of([&] { group.wait(first); });
                           later = error_of([&] { group.post_send("z", 0, value); });
                           ended.count_down();
                           throw Error("{}", error);
                         }});
    EXPECT_THAT(errors[1],
                StartsWith("message 0 'x' of f32 [4] from rank 0 to rank 1 of group [0, 1] on lane "
                           "work: rank 0 has withdrawn it"));
    EXPECT_EQ(later, errors[1]) << "the group is broken";
  }
}

/// Memory is freed while the other rank may be copying it. What arrives is whole.
TEST(PostedMessages, AreWithdrawnWhileTheOtherCopies) {
  constexpr int64_t kElements = 20'000;
  for (int turn = 0; turn < 200; ++turn) {
    const bool sender_withdraws = turn % 2 == 0;
    const Tensor sent = random_tensor({kElements}, DType::f32, 5);
    std::atomic<int> posted = 0;
    errors_of_ranks({[&](Communicator& group) {
                       std::vector<std::byte> memory(kElements * 4);
                       const Tensor value = Tensor::wrap(memory.data(), {kElements}, DType::f32);
                       if (sender_withdraws) value.copy_from(sent);
                       std::optional<PostedMessage> message =
                           sender_withdraws ? group.post_send("x", 1, value)
                                            : group.post_receive("x", 1, value);
                       for (++posted; posted < 2;) std::this_thread::yield();
                       std::this_thread::sleep_for(std::chrono::microseconds(turn % 20));
                       message.reset();
                       std::ranges::fill(memory, std::byte{0});
                       memory = {};
                     },
                     [&](Communicator& group) {
                       const Tensor value({kElements}, DType::f32);
                       if (!sender_withdraws) value.copy_from(sent);
                       PostedMessage message = sender_withdraws ? group.post_receive("x", 0, value)
                                                                : group.post_send("x", 0, value);
                       for (++posted; posted < 2;) std::this_thread::yield();
                       group.wait(message);
                       EXPECT_TRUE(bytes_of(value) == bytes_of(sent));
                     }});
  }
}

}  // namespace
}  // namespace tessera
