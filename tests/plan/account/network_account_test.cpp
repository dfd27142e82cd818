#include "plan/account/network_account.h"

#include <random>

#include <gtest/gtest.h>

#include "support/network_trace.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::data_group;
using testing::NetworkTrace;

NetworkAccount account_of(const RunTrace& trace) {
  return account_for_network(trace, network_calls(trace));
}

const TraceGroup kTensor{.axes = {"tensor"}, .stages = {}, .first_rank = 0, .ranks = 2};

/// Rank 0 computes until 4 ms and from 9 ms on. Its call goes from 2 to 10 ms, and the other rank
/// arrives at 6 ms.
TEST(NetworkAccount, TellsHiddenExposedAndWaitingTimeApart) {
  NetworkTrace trace(2);
  trace.compute(0, 0, 4);
  trace.compute(0, 9, 12);
  trace.call(0, 2, 10, data_group());
  trace.compute(1, 0, 6);
  trace.call(1, 6, 10, data_group());
  const NetworkAccount account = account_of(trace.run);
  ASSERT_EQ(account.ranks.size(), 2U);
  ASSERT_EQ(account.ranks[0].by_axes.size(), 1U);
  const NetworkTime& first = account.ranks[0].by_axes[0];
  EXPECT_EQ(first.axes, "data");
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(first.bytes, 1000);
  EXPECT_EQ(first.total, milliseconds(8));
  EXPECT_EQ(first.hidden, milliseconds(2 + 1));
  EXPECT_EQ(first.exposed(), milliseconds(5));
  EXPECT_EQ(first.waiting, milliseconds(2)) << "from 4 ms on, when it does not compute";
  EXPECT_EQ(first.transferring, milliseconds(3));
  const NetworkTime& second = account.ranks[1].all;
  EXPECT_EQ(second.waiting, milliseconds(0)) << "it is the slowest";
  EXPECT_EQ(second.transferring, milliseconds(4));
  EXPECT_TRUE(account.unmatched.empty());
}

/// Two lanes call over the same axis at once, and a third call is over another axis.
TEST(NetworkAccount, CountsAMomentOnceForEachSetOfAxes) {
  NetworkTrace trace(2);
  for (const int rank : {0, 1}) {
    trace.call(rank, 1, 5, data_group(), Lane::exchanges);
    trace.call(rank, 3, 9, data_group(), Lane::reductions);
    trace.call(rank, 8, 12, kTensor, Lane::exchanges);
  }
  const NetworkAccount account = account_of(trace.run);
  const RankNetwork& rank = account.ranks[1];
  ASSERT_EQ(rank.by_axes.size(), 2U);
  EXPECT_EQ(rank.by_axes[0].calls, 2);
  EXPECT_EQ(rank.by_axes[0].total, milliseconds(8));
  EXPECT_EQ(rank.by_axes[1].axes, "tensor");
  EXPECT_EQ(rank.by_axes[1].total, milliseconds(4));
  EXPECT_EQ(rank.all.calls, 3);
  EXPECT_EQ(rank.all.total, milliseconds(11));
  const std::vector<NetworkTime> sums = account.sums();
  ASSERT_EQ(sums.size(), 3U);
  EXPECT_EQ(sums[0].axes, "data") << "the most exposed first";
  EXPECT_EQ(sums[0].total, milliseconds(16));
  EXPECT_EQ(sums[2].axes, "all");
  EXPECT_EQ(sums[2].bytes, 6000);
}

/// One call waits while the other one transfers.
TEST(NetworkAccount, AMomentOfTransferIsNoneOfWaiting) {
  NetworkTrace trace(2);
  trace.call(0, 0, 6, data_group(), Lane::exchanges);
  trace.call(0, 2, 10, data_group(), Lane::reductions);
  trace.call(1, 1, 6, data_group(), Lane::exchanges);
  trace.call(1, 8, 10, data_group(), Lane::reductions);
  const NetworkTime time = account_of(trace.run).ranks[0].all;
  EXPECT_EQ(time.total, milliseconds(10));
  EXPECT_EQ(time.waiting, milliseconds(1 + 2)) << "from 0 to 1 ms and from 6 to 8 ms";
  EXPECT_EQ(time.transferring, milliseconds(5 + 2));
}

TEST(NetworkAccount, DoesNotTellApartWhatIsNotKnown) {
  NetworkTrace trace(2);
  trace.run.ranks_left_out = 2;
  trace.compute(0, 0, 2);
  trace.call(0, 1, 5, data_group(0, 4));
  trace.call(1, 2, 5, data_group(0, 4));
  const NetworkAccount account = account_of(trace.run);
  const NetworkTime& time = account.ranks[0].all;
  EXPECT_EQ(time.hidden, milliseconds(1));
  EXPECT_EQ(time.not_told_apart, milliseconds(3));
  EXPECT_EQ(time.waiting + time.transferring, milliseconds(0));
  EXPECT_EQ(account.unmatched, (std::map<CallMatch, int64_t>{{CallMatch::ranks_left_out, 2}}));
}

TEST(NetworkAccount, HasTheWaitsForMessagesAndTheirUncertainty) {
  const BoundaryMessage message{BoundaryKind::activations, 0, 0};
  NetworkTrace trace(2);
  trace.of(1).step.clock_uncertainty = 1e-6;
  trace.compute(0, 0, 5);
  trace.message(0, 5, 5, MessageCall::post_send, message, 256);
  trace.message(0, 9, 9.5, MessageCall::wait_send, message);
  trace.message(1, 0, 0, MessageCall::post_receive, message);
  trace.message(1, 1, 7, MessageCall::wait_receive, message);
  const NetworkAccount account = account_of(trace.run);
  const NetworkTime& receiver = account.ranks[1].all;
  EXPECT_EQ(receiver.waiting, milliseconds(4)) << "for the sender's post";
  EXPECT_EQ(receiver.transferring, milliseconds(2));
  EXPECT_EQ(account.ranks[0].all.bytes, 256);
  EXPECT_EQ(account.ranks[0].by_axes[0].axes, "pipeline");
  EXPECT_DOUBLE_EQ(account.uncertainty, 1e-6);
}

TEST(NetworkAccount, CountsOperationsThatComputeAndCall) {
  NetworkTrace trace(2);
  for (const int rank : {0, 1}) {
    trace.call(rank, 0, 4, kTensor, Lane::compute);
    trace.call(rank, 2, 6, data_group(), Lane::reductions);
  }
  const NetworkAccount account = account_of(trace.run);
  EXPECT_EQ(account.calls_in_compute, 2);
  EXPECT_EQ(account.ranks[0].all.calls, 1);
  EXPECT_EQ(account.ranks[0].all.hidden, milliseconds(2)) << "beside an operation that computes";
}

/// Whatever overlaps, each moment of a call is in exactly one part.
TEST(NetworkAccount, PartsAddUpExactly) {
  std::mt19937_64 random(7);
  const auto drawn = [&](int max) { return static_cast<double>(random() % uint64_t(max)) / 7; };
  for (int round = 0; round < 100; ++round) {
    NetworkTrace trace(3);
    for (int rank = 0; rank < 3; ++rank) {
      for (const Lane lane : {Lane::compute, Lane::exchanges, Lane::reductions}) {
        double time = drawn(30);
        for (int i = 0; i < 6; ++i) {
          const double end = time + drawn(40);
          if (lane == Lane::compute) {
            trace.compute(rank, time, end);
          } else {
            trace.call(rank, time, end, i % 2 == 0 ? data_group(0, 3) : kTensor, lane);
          }
          time = end + drawn(20);
        }
      }
    }
    const NetworkAccount account = account_of(trace.run);
    for (const RankNetwork& rank : account.ranks) {
      nanoseconds of_axes{};
      for (const NetworkTime& time : rank.by_axes) {
        EXPECT_EQ(time.hidden + time.exposed(), time.total);
        of_axes += time.total;
      }
      EXPECT_EQ(rank.all.hidden + rank.all.exposed(), rank.all.total);
      EXPECT_LE(rank.all.total, of_axes);
    }
  }
}

}  // namespace
}  // namespace tessera
