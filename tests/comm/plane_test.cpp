// What ranks tell the control plane of their waits in calls that it does not make, and what it
// says.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/call_errors.h"
#include "comm/ranks_and_values.h"
#include "comm/tcp/plane_letters.h"
#include "comm/tcp/plane_process.h"
#include "comm/tcp_support.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using testing::end_well;
using ::testing::HasSubstr;
using testing::kPatience;
using testing::run_by_tcp;

constexpr const char* kLane = "network";

/// Collective `number` of this name.
Fingerprint call(const char* name, int64_t number) {
  return {.name = name, .collective = Collective::barrier, .sequence = number, .shape = {}};
}

/// The wait of a rank for the others in a call of all ranks.
PlaneWait wait_of(const Processes& processes, const Fingerprint& mark,
                  milliseconds remaining = std::chrono::hours(1)) {
  PlaneWait wait{.number = 7,
                 .ranks = first_ranks(processes.ranks()),
                 .lane = kLane,
                 .mark = {std::string(mark.name), mark},
                 .timeout = milliseconds(400),
                 .remaining = remaining};
  for (const int rank : wait.ranks) {
    if (rank != processes.rank()) wait.needs.push_back(rank);
  }
  return wait;
}

/// Waits until the plane says why a wait cannot end.
std::string verdict_of(PlaneProcess& plane, int64_t wait) {
  for (int i = 0; i < 20'000; ++i) {
    if (auto why = plane.own_calls().verdict(wait)) return *why;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return "nothing is said";
}

TEST(PlaneWaits, InDifferentCallsOfOneNumberEndAtOnce) {
  run_by_tcp(3, [](Processes& processes) {
    auto& plane = static_cast<PlaneProcess&>(processes);
    Communicator control = plane.group(first_ranks(3), "control");
    if (plane.rank() != 2) {  // rank 2 computes
      plane.begin_wait(wait_of(plane, call(plane.rank() == 0 ? "norm" : "loss", 4)));
      EXPECT_EQ(verdict_of(plane, 7),
                disagreement_text(
                    group_text(first_ranks(3), kLane),
                    std::vector<std::string>{"rank 0 (host0) made call 4, barrier 'norm'",
                                             "rank 1 (host1) made call 4, barrier 'loss'"}));
    }
    control.barrier("all know");
    end_well(plane);
  });
}

/// A rank may have ended a call in which another still waits for its bytes.
TEST(PlaneWaits, InCallsOfDifferentNumbersEndWhenTheirTimeIsOver) {
  run_by_tcp(2, [](Processes& processes) {
    auto& plane = static_cast<PlaneProcess&>(processes);
    Communicator control = plane.group(first_ranks(2), "control");
    const Fingerprint mark = call("step", plane.rank());
    OwnCalls& calls = plane.own_calls();
    calls.note(*calls.add_group(group_text(first_ranks(2), kLane)),
               [&](CallRecord& last) { last.begin(mark); });
    control.barrier("both are in their calls");
    plane.begin_wait(
        wait_of(plane, mark, plane.rank() == 0 ? milliseconds(1) : std::chrono::hours(1)));
    EXPECT_THAT(
        verdict_of(plane, 7),
        AllOf(HasSubstr("call 0, barrier 'step' of group [0, 1] on lane network: after 0.4 s"),
              HasSubstr("rank 0 waited and rank 1 did not come"),
              HasSubstr("Rank 1 waits in call 1, barrier 'step' of group [0, 1]"),
              HasSubstr("(on host1)")));
    control.barrier("all know");
    end_well(plane);
  });
}

TEST(PlaneWaits, ForARankThatHasEndedEnd) {
  run_by_tcp(2, [](Processes& processes) {
    auto& plane = static_cast<PlaneProcess&>(processes);
    if (plane.rank() == 0) {
      plane.begin_wait(wait_of(plane, call("step", 3)));
      EXPECT_THAT(verdict_of(plane, 7),
                  AllOf(HasSubstr("call 3, barrier 'step'"), HasSubstr("rank 1 ended without it"),
                        HasSubstr("rank 1 (host1) has done all of its work")));
    }
    end_well(plane);
  });
}

TEST(PlaneWaits, ThatEndInTimeHaveNoVerdict) {
  run_by_tcp(2, [](Processes& processes) {
    auto& plane = static_cast<PlaneProcess&>(processes);
    Communicator control = plane.group(first_ranks(2), "control");
    plane.begin_wait(wait_of(plane, call("step", 3)));
    plane.end_wait(7);
    plane.begin_wait(wait_of(plane, call("step", 3)));  // the number is free again
    plane.end_wait(7);
    control.barrier("both go on");
    EXPECT_FALSE(plane.own_calls().verdict(7).has_value());
    end_well(plane);
  });
}

TEST(PlaneLetters, OfAWaitComeAsTheyWereSent) {
  PlaneWait sent{.number = 5,
                 .ranks = {3, 1, 2},
                 .lane = "network",
                 .mark = {"norm", {.collective = Collective::all_reduce, .sequence = 9}},
                 .needs = {3, 2},
                 .timeout = milliseconds(2000),
                 .remaining = milliseconds(1500)};
  WireWriter letter;
  put_wait(letter, sent);
  WireReader reader(letter.bytes());
  PlaneWait come = take_wait_of(reader, 1, 4);
  EXPECT_EQ(come.number, sent.number);
  EXPECT_EQ(come.ranks, sent.ranks);
  EXPECT_EQ(come.needs, sent.needs);
  EXPECT_EQ(come.lane, sent.lane);
  EXPECT_EQ(come.mark.get(), sent.mark.get());
  EXPECT_EQ(come.timeout, sent.timeout);
  EXPECT_EQ(come.remaining, sent.remaining);
}

TEST(PlaneLetters, OfNoRankAreRefused) {
  const PlaneWait sound{.ranks = {0, 1}, .lane = "network", .mark = {"x", {}}, .needs = {0}};
  const auto error = [&](auto&& change) {
    PlaneWait wait = sound;
    change(wait);
    WireWriter letter;
    put_wait(letter, wait);
    WireReader reader(letter.bytes());
    return error_of([&] { take_wait_of(reader, 1, 2); });
  };
  EXPECT_THAT(error([](PlaneWait& wait) { wait.ranks = {0, 2}; }), HasSubstr("a wait of rank 1"));
  EXPECT_THAT(error([](PlaneWait& wait) { wait.ranks = {0}; }), HasSubstr("a wait of rank 1"));
  EXPECT_THAT(error([](PlaneWait& wait) { wait.needs = {1}; }), HasSubstr("a wait of rank 1"));
  EXPECT_THAT(error([](PlaneWait& wait) { wait.needs = {-1}; }), HasSubstr("a wait of rank 1"));
  EXPECT_THAT(error([](PlaneWait& wait) { wait.remaining = milliseconds(-1); }),
              HasSubstr("a time to wait"));
}

}  // namespace
}  // namespace tessera
