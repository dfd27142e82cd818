#include "plan/account/network_calls.h"

#include <gtest/gtest.h>

#include "support/network_trace.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using testing::data_group;
using testing::NetworkTrace;

/// Expects when the last rank arrived, and which one it was.
void expect_arrival(const NetworkCall& call, milliseconds at, size_t rank) {
  EXPECT_EQ(call.match, CallMatch::known);
  ASSERT_TRUE(call.arrival);
  EXPECT_EQ(call.arrival->at, at);
  EXPECT_EQ(call.arrival->rank, rank);
}

TEST(NetworkCalls, TheLastRankArrivesWhenItBegins) {
  NetworkTrace trace(3);
  trace.call(0, 1, 7, data_group(0, 3));
  trace.call(1, 4, 6, data_group(0, 3));
  trace.call(2, 2, 8, data_group(0, 3));
  const auto calls = network_calls(trace.run);
  ASSERT_EQ(calls.size(), 3U);
  for (const auto& of_rank : calls) {
    ASSERT_EQ(of_rank.size(), 1U);
    expect_arrival(of_rank[0], milliseconds(4), 1);
    EXPECT_EQ(of_rank[0].arrival->begun, milliseconds(4));
    EXPECT_EQ(of_rank[0].axes, "data");
    EXPECT_EQ(of_rank[0].bytes, 1000);
  }
  EXPECT_EQ(calls[2][0].start, milliseconds(2));
  EXPECT_EQ(calls[2][0].end, milliseconds(8));
}

/// Each lane has its own order, and so has each group: only calls of the same number belong
/// together.
TEST(NetworkCalls, MatchByTheirNumberOnALaneInAGroup) {
  const TraceGroup tensor{.axes = {"tensor"}, .stages = {}, .first_rank = 0, .ranks = 2};
  NetworkTrace trace(4);
  trace.call(0, 1, 3, tensor);
  trace.call(0, 3, 6, data_group());
  trace.call(0, 6, 9, tensor);
  // On another lane the same ranks call each other meanwhile. Ranks record lanes in any order.
  trace.call(1, 1, 9, data_group(), Lane::reductions);
  trace.call(1, 2, 3, tensor);
  trace.call(1, 4, 6, data_group());
  trace.call(1, 7, 9, tensor);
  trace.call(0, 5, 9, data_group(), Lane::reductions);
  // Other ranks have groups over the same axis.
  trace.call(2, 8, 9, data_group(2));
  trace.call(3, 8, 9, data_group(2));
  const auto calls = network_calls(trace.run);
  expect_arrival(calls[0][0], milliseconds(2), 1);
  expect_arrival(calls[0][1], milliseconds(4), 1);
  expect_arrival(calls[0][2], milliseconds(7), 1);
  expect_arrival(calls[0][3], milliseconds(5), 0);
  expect_arrival(calls[1][0], milliseconds(5), 0);
  expect_arrival(calls[2][0], milliseconds(8), 2);
  expect_arrival(calls[3][0], milliseconds(8), 3);
}

TEST(NetworkCalls, OfSeveralGroupsWaitForTheLastRankOfAll) {
  const TraceGroup expert{.axes = {"expert_data"}, .stages = {}, .first_rank = 0, .ranks = 2};
  NetworkTrace trace(3);
  trace.call(0, 1, 9, {data_group(), expert}, Lane::reductions);
  trace.call(1, 3, 9, {data_group()}, Lane::reductions);
  trace.call(2, 5, 9, {expert}, Lane::reductions);
  const auto calls = network_calls(trace.run);
  expect_arrival(calls[0][0], milliseconds(5), 2);
  expect_arrival(calls[1][0], milliseconds(3), 1);
  EXPECT_EQ(calls[0][0].axes, "data+expert_data");
}

/// A gather of what the rank has itself is on a lane that communicates, and calls nobody.
TEST(NetworkCalls, OperationsThatCallNobodyAreNone) {
  NetworkTrace trace(2);
  trace.call(0, 1, 2, std::vector<TraceGroup>{}, Lane::reductions);
  EXPECT_TRUE(network_calls(trace.run)[0].empty());
}

TEST(NetworkCalls, OperationsThatComputeAreNone) {
  NetworkTrace trace(2);
  trace.call(0, 1, 2, data_group(), Lane::compute);
  trace.call(1, 1, 2, data_group(), Lane::compute);
  for (const auto& of_rank : network_calls(trace.run)) EXPECT_TRUE(of_rank.empty());
}

TEST(NetworkCalls, WhoseClocksDisagreeHaveTheArrivalWithinThemAndItsUncertainty) {
  NetworkTrace trace(2);
  trace.of(0).step.clock_uncertainty = 2e-3;
  trace.of(1).step.clock_uncertainty = 3e-3;
  trace.call(0, 1, 4, data_group());
  trace.call(1, 5, 6, data_group());  // after the other rank has ended
  const auto calls = network_calls(trace.run);
  expect_arrival(calls[0][0], milliseconds(4), 1);
  EXPECT_EQ(calls[0][0].arrival->begun, milliseconds(5));
  EXPECT_DOUBLE_EQ(calls[0][0].arrival->uncertainty, 5e-3);
  expect_arrival(calls[1][0], milliseconds(5), 1);
  EXPECT_EQ(calls[1][0].arrival->uncertainty, 0) << "a rank knows its own clock";
}

TEST(NetworkCalls, DoNotGuessWhatIsNotInTheFile) {
  const auto match_of = [](NetworkTrace& trace) {
    const auto calls = network_calls(trace.run);
    for (const auto& of_rank : calls) {
      for (const NetworkCall& call : of_rank) EXPECT_FALSE(call.arrival);
    }
    return calls[0][0].match;
  };
  NetworkTrace left_out(2);
  left_out.run.ranks_left_out = 1;
  left_out.call(0, 1, 4, data_group(0, 3));
  left_out.call(1, 1, 4, data_group(0, 3));
  EXPECT_EQ(match_of(left_out), CallMatch::ranks_left_out);
  NetworkTrace counts(2);
  counts.call(0, 1, 4, data_group());
  counts.call(1, 1, 4, data_group());
  counts.call(1, 4, 5, data_group());
  EXPECT_EQ(match_of(counts), CallMatch::counts_differ);
  NetworkTrace missing(2);
  missing.call(0, 1, 4, data_group());
  EXPECT_EQ(match_of(missing), CallMatch::counts_differ);
  NetworkTrace earlier(1);
  earlier.run.has_groups = false;
  earlier.call(0, 1, 4, std::vector<TraceGroup>{}, Lane::exchanges);
  EXPECT_EQ(match_of(earlier), CallMatch::not_recorded);
  // One of two groups is not known.
  NetworkTrace one_of_two(2);
  one_of_two.call(0, 1, 4, {data_group(), data_group(0, 3)}, Lane::reductions);
  one_of_two.call(1, 2, 4, {data_group(), data_group(1, 3)}, Lane::reductions);
  EXPECT_EQ(match_of(one_of_two), CallMatch::counts_differ);
}

TEST(NetworkCalls, AWaitForAMessageWaitsForThePostOfTheOtherSide) {
  const BoundaryMessage early{BoundaryKind::activations, 0, 0};
  const BoundaryMessage late{BoundaryKind::gradients, 1, 0};
  NetworkTrace trace(2);
  trace.message(0, 1, 1, MessageCall::post_send, early, 64);
  trace.message(0, 2, 2, MessageCall::post_receive, late);
  trace.message(0, 3, 8, MessageCall::wait_receive, late);
  trace.message(0, 8, 9, MessageCall::wait_send, early);
  trace.message(1, 2, 2, MessageCall::post_receive, early);
  trace.message(1, 4, 5, MessageCall::wait_receive, early);
  trace.message(1, 7, 7, MessageCall::post_send, late, 32);
  trace.message(1, 8, 9, MessageCall::wait_send, late);
  const auto calls = network_calls(trace.run);
  ASSERT_EQ(calls[0].size(), 2U);
  EXPECT_EQ(calls[0][0].axes, "pipeline");
  expect_arrival(calls[0][0], milliseconds(7), 1);
  EXPECT_EQ(calls[0][0].bytes, 0) << "it receives";
  expect_arrival(calls[0][1], milliseconds(8), 0);
  EXPECT_EQ(calls[0][1].bytes, 64);
  expect_arrival(calls[1][0], milliseconds(4), 1);
  EXPECT_EQ(calls[1][1].bytes, 32);
}

TEST(NetworkCalls, AMessageOfAnotherPipelineIsAnother) {
  const BoundaryMessage message{BoundaryKind::activations, 0, 0};
  NetworkTrace trace(3);
  trace.of(2).pipeline = 2;
  trace.message(0, 1, 4, MessageCall::wait_receive, message);
  trace.message(1, 2, 2, MessageCall::post_send, message);
  trace.message(2, 3, 3, MessageCall::post_send, message);
  expect_arrival(network_calls(trace.run)[0][0], milliseconds(2), 1);
  trace.of(1).list.clear();
  EXPECT_EQ(network_calls(trace.run)[0][0].match, CallMatch::counts_differ);
  trace.run.ranks_left_out = 1;
  EXPECT_EQ(network_calls(trace.run)[0][0].match, CallMatch::ranks_left_out);
}

}  // namespace
}  // namespace tessera
