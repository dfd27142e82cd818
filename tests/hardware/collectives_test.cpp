#include <array>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/interrupt.h"
#include "comm/in_process/world.h"
#include "hardware/collective_groups.h"
#include "hardware/collective_rate.h"
#include "hardware/hardware_file.h"
#include "support/error_of.h"
#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr CollectiveRanks kFour{.kind = RankKind::processes, .count = 4, .machines = 2};

CollectiveRate rate_of(Collective collective) {
  return {collective, DType::f32, kFour, 12'000'000, 0.003, 0.004};
}

/// 12 MB in 3 ms are 4 GB/s; of four ranks each sends three quarters to others, and of a sum twice.
TEST(Collectives, BusBandwidthIsWhatEachRankMustSend) {
  EXPECT_DOUBLE_EQ(rate_of(Collective::all_reduce).bus_bandwidth(), 6e9);
  EXPECT_DOUBLE_EQ(rate_of(Collective::all_gather).bus_bandwidth(), 3e9);
  EXPECT_DOUBLE_EQ(rate_of(Collective::reduce_scatter).bus_bandwidth(), 3e9);
  EXPECT_DOUBLE_EQ(rate_of(Collective::all_to_all).bus_bandwidth(), 3e9);
  EXPECT_DOUBLE_EQ(rate_of(Collective::broadcast).bus_bandwidth(), 4e9);
  EXPECT_DOUBLE_EQ(rate_of(Collective::message).bus_bandwidth(), 4e9);
}

TEST(Collectives, AreMeasuredOnEveryRankAlike) {
  World world(3);
  std::vector<std::vector<CollectiveRate>> rates(3);
  const CollectiveSweep sweep{
      .collectives = {kMeasuredCollectives.begin(), kMeasuredCollectives.end()},
      .bytes = {4, 1000, 1 << 16},
      .dtype = DType::bf16,
      .seconds = 0};
  std::vector<int64_t> received(3);
  run_ranks(world, [&](int rank) {
    Communicator group = world.group(rank, std::array{0, 1, 2});
    rates[static_cast<size_t>(rank)] = measure_collectives(group, group, {.count = 3}, sweep);
    received[static_cast<size_t>(rank)] = group.traffic(Collective::all_to_all).received_bytes;
  });
  EXPECT_EQ(rates[1], rates[0]);
  EXPECT_EQ(rates[2], rates[0]);
  ASSERT_EQ(rates[0].size(), 6U * 3);
  for (const CollectiveRate& rate : rates[0]) {
    EXPECT_GT(rate.best_seconds, 0);
    EXPECT_GE(rate.median_seconds, rate.best_seconds);
    EXPECT_EQ(rate.bytes % (3 * 2), 0) << "whole elements for each rank";
  }
  EXPECT_EQ(rates[0][0].bytes, 6);
  EXPECT_EQ(rates[0][1].bytes, 1002);
  // Each rank gets a third from each of the two others, in every call: at least the first one, a
  // timed one and three batches of one.
  EXPECT_GE(received[0], 5 * (4 + 668 + 2 * 21846));
}

TEST(Collectives, AreMeasuredInGroupsAtOnceAsAxesCall) {
  const std::vector<std::string> hosts{"a", "a", "a", "a", "b", "b", "b", "b"};
  using Groups = std::vector<CollectiveGroups>;
  EXPECT_EQ(collective_groups(2, hosts),
            (Groups{{{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, 1}, {{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, 2}}));
  EXPECT_EQ(collective_groups(4, hosts),
            (Groups{{{{0, 1, 2, 3}, {4, 5, 6, 7}}, 1}, {{{0, 2, 4, 6}, {1, 3, 5, 7}}, 2}}));
  EXPECT_EQ(collective_groups(8, hosts), (Groups{{{{0, 1, 2, 3, 4, 5, 6, 7}}, 2}}));
  EXPECT_EQ(collective_groups(3, hosts), (Groups{{{{0, 1, 2}}, 1}})) << "does not divide";
  EXPECT_EQ(collective_groups(5, hosts), (Groups{{{{0, 1, 2, 3, 4}}, 2}}));
  const std::vector<std::string> one(4, "a");
  EXPECT_EQ(collective_groups(2, one), (Groups{{{{0, 1}, {2, 3}}, 1}}));
}

/// The slowest of all ranks decides, whatever group it is in.
TEST(Collectives, OfGroupsAtOnceHaveTheTimesOfTheSlowestRank) {
  World world(4);
  std::vector<std::vector<CollectiveRate>> rates(4);
  const CollectiveSweep sweep{.collectives = {Collective::all_reduce}, .bytes = {64}, .seconds = 0};
  run_ranks(world, [&](int rank) {
    const std::array members = rank < 2 ? std::array{0, 1} : std::array{2, 3};
    Communicator group = world.group(rank, members);
    Communicator everyone = world.group(rank, std::array{0, 1, 2, 3});
    rates[static_cast<size_t>(rank)] = measure_collectives(group, everyone, {.count = 2}, sweep);
  });
  for (const auto& of_rank : rates) EXPECT_EQ(of_rank, rates[0]);
}

/// Each would be measured for eleven days.
TEST(Collectives, ASignalEndsThem) {
  const InterruptGuard guard;
  const CollectiveSweep sweep{.collectives = {Collective::all_reduce, Collective::broadcast},
                              .bytes = {64},
                              .seconds = 1e6};
  World world(2);
  std::array<std::string, 2> errors;
  run_ranks(world, [&](int rank) {
    Communicator group = world.group(rank, std::array{0, 1});
    if (rank == 1) std::raise(SIGINT);
    errors[static_cast<size_t>(rank)] =
        error_of([&] { measure_collectives(group, group, {.count = 2}, sweep); });
  });
  EXPECT_EQ(errors[0], "interrupted");
  EXPECT_EQ(errors[1], "interrupted");
}

TEST(Collectives, AreKeptInAHardwareFile) {
  Hardware hardware{{"Some CPU", {"avx2"}, 1, 2, 3, 2}, {}, {}};
  const std::string without = hardware_json(hardware);
  EXPECT_THAT(without, ::testing::Not(HasSubstr("collectives")));
  hardware.collectives = {rate_of(Collective::all_reduce), rate_of(Collective::message)};
  const std::string text = hardware_json(hardware);
  EXPECT_EQ(parse_hardware(text, "x").collectives, hardware.collectives);
  EXPECT_TRUE(parse_hardware(without, "x").collectives.empty());
  const auto refused = [&](const char* member, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(text);
    json["collectives"][1][member] = value;
    return error_of([&] { parse_hardware(json.dump(), "machine.json"); });
  };
  EXPECT_THAT(refused("collective", "sum"), HasSubstr("machine.json: collectives[1]"));
  EXPECT_THAT(refused("carrier", "pigeons"), HasSubstr("pigeons"));
  EXPECT_THAT(refused("best", 0), HasSubstr("seconds above 0"));
  EXPECT_THAT(refused("best", "fast"), HasSubstr("seconds above 0"));
  EXPECT_THAT(refused("ranks", 1), HasSubstr("ranks"));
  EXPECT_THAT(refused("bytes", -1), HasSubstr("bytes"));
  EXPECT_THAT(refused("colour", 1), HasSubstr("colour"));
}

TEST(Collectives, AreShownByRanksAndSize) {
  std::vector<CollectiveRate> rates{rate_of(Collective::all_reduce),
                                    rate_of(Collective::broadcast)};
  rates.push_back(rates[0]);
  rates.back().ranks.machines = 1;
  const std::string text = collectives_text(rates);
  EXPECT_THAT(text, HasSubstr("4 processes of 2 machines, f32: bus bandwidth, GB/s"));
  EXPECT_THAT(text, HasSubstr("4 processes of 1 machine, f32: microseconds of a call"));
  EXPECT_THAT(text, HasSubstr("11.4 MiB       6.000      4.000"));
  EXPECT_THAT(text, HasSubstr("3000.0"));
  const std::string picture = collectives_picture(rates);
  EXPECT_THAT(testing::texts_of(picture), HasSubstr("all_reduce, 4 processes of 2 machines, f32"));
}

}  // namespace
}  // namespace tessera
