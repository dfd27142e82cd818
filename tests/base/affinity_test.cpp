#include "base/affinity.h"

#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "base/parallel.h"

namespace tessera {
namespace {

std::vector<int> cores_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

/// The cores that each thread of a team may run on.
std::vector<std::vector<int>> cores_of_team(int threads) {
  std::vector<std::vector<int>> cores(static_cast<size_t>(threads));
  parallel_ranges(threads, threads, 1, [&](int64_t, int64_t, int thread) {
    cores[static_cast<size_t>(thread)] = cores_of_this_thread();
  });
  return cores;
}

class BoundTeamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("OMP_PROC_BIND") != nullptr || std::getenv("OMP_PLACES") != nullptr ||
        std::getenv("GOMP_CPU_AFFINITY") != nullptr) {
      GTEST_SKIP() << "OpenMP's threads are bound by the environment";
    }
    if (cores() < 2) GTEST_SKIP() << "one core";
  }
  int cores() const { return static_cast<int>(all_.size()); }

  const std::vector<int> all_ = cores_of_this_thread();
};

TEST_F(BoundTeamTest, EachThreadHasACoreOfItsOwnForAsLongAsItLives) {
  {
    const BoundTeam team(cores());
    EXPECT_TRUE(team.bound());
    std::set<int> used;
    for (const auto& own : cores_of_team(cores())) {
      ASSERT_EQ(own.size(), 1U);
      used.insert(own[0]);
    }
    EXPECT_EQ(used, std::set<int>(all_.begin(), all_.end()));
  }
  for (const auto& own : cores_of_team(cores())) EXPECT_EQ(own, all_);
}

TEST_F(BoundTeamTest, ThreadsInTheBackgroundRunAnywhere) {
  const BoundTeam team(cores());
  std::vector<int> inherited, freed;
  std::thread([&] {
    inherited = cores_of_this_thread();
    run_on_any_core();
    freed = cores_of_this_thread();
  }).join();
  EXPECT_EQ(inherited.size(), 1U);
  EXPECT_EQ(freed, all_);
}

TEST_F(BoundTeamTest, FewerOrMoreThreadsThanCoresAreNotBound) {
  for (const int threads : {1, cores() - 1, cores() + 1}) {
    const BoundTeam team(threads);
    EXPECT_FALSE(team.bound());
    for (const auto& own : cores_of_team(threads)) EXPECT_EQ(own, all_);
  }
}

TEST_F(BoundTeamTest, WhatTheUserHasBoundStays) {
  ASSERT_EQ(::setenv("OMP_PLACES", "cores", 1), 0);
  EXPECT_FALSE(BoundTeam(cores()).bound());
  ASSERT_EQ(::unsetenv("OMP_PLACES"), 0);
}

}  // namespace
}  // namespace tessera
