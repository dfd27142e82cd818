#include "comm/launch.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera {
namespace {

std::optional<Launch> launch_with(const std::map<std::string, std::string>& environment) {
  return find_launch([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, KnowsWhoStartedHowManyProcesses) {
  const auto expect = [](const char* name, const char* of_rank, const char* launcher) {
    const auto launch = launch_with({{name, "8"}, {of_rank, "3"}});
    ASSERT_TRUE(launch) << name;
    EXPECT_EQ(launch->launcher, launcher);
    EXPECT_EQ(launch->processes, 8);
    EXPECT_EQ(launch->rank, 3);
    EXPECT_EQ(launch_with({{name, "8"}})->rank, 0) << "not said";
  };
  expect("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun");
  expect("PMI_SIZE", "PMI_RANK", "mpiexec");
  expect("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun");
}

/// A batch script has SLURM_NTASKS without srun, and one process is no group.
TEST(Launch, IsNothingForAProcessThatIsAlone) {
  EXPECT_FALSE(launch_with({}));
  EXPECT_FALSE(launch_with({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(launch_with({{"OMPI_COMM_WORLD_SIZE", "1"}}));
}

TEST(Launch, HasAnAddressWhereProcessesMeetWithoutMpi) {
  const auto by_hand = launch_with(
      {{"TESSERA_RANKS", "4"}, {"TESSERA_RANK", "2"}, {"TESSERA_ADDRESS", "node0:29500"}});
  ASSERT_TRUE(by_hand);
  EXPECT_EQ(by_hand->processes, 4);
  EXPECT_EQ(by_hand->rank, 2);
  EXPECT_EQ(by_hand->address, "node0:29500");
  const auto by_srun = launch_with(
      {{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "3"}, {"TESSERA_ADDRESS", "node0:29500"}});
  ASSERT_TRUE(by_srun);
  EXPECT_EQ(by_srun->rank, 3);
  EXPECT_EQ(by_srun->address, "node0:29500");
  EXPECT_FALSE(launch_with({{"TESSERA_RANKS", "1"}, {"TESSERA_ADDRESS", "node0:29500"}}));
  EXPECT_FALSE(launch_with({{"TESSERA_RANKS", "1"}}));

  const auto refused = [](const std::map<std::string, std::string>& environment) {
    return error_of([&] { launch_with(environment); });
  };
  EXPECT_THAT(refused({{"TESSERA_ADDRESS", "node0:29500"}}),
              ::testing::HasSubstr("nothing says how many they are"));
  EXPECT_THAT(refused({{"TESSERA_RANKS", "2"}}),
              ::testing::HasSubstr("TESSERA_ADDRESS does not say where the processes meet"));
  // What another run has left in the environment.
  for (const char* ours : {"1", "2"}) {
    EXPECT_THAT(refused({{"TESSERA_RANKS", ours}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
                ::testing::HasSubstr("but mpirun started 4 processes; unset it"));
  }
  for (const char* rank : {"", "4", "-1", "two"}) {
    EXPECT_THAT(
        refused(
            {{"TESSERA_RANKS", "4"}, {"TESSERA_RANK", rank}, {"TESSERA_ADDRESS", "node0:29500"}}),
        ::testing::HasSubstr("expected the number of this process, from 0 to 3"))
        << rank;
  }
  EXPECT_THAT(refused({{"TESSERA_RANKS", "4"}, {"TESSERA_ADDRESS", "node0:29500"}}),
              ::testing::HasSubstr("TESSERA_RANK is not set"));
}

TEST(Launch, HasATokenWhereThereIsAnAddress) {
  std::map<std::string, std::string> variables{
      {"TESSERA_RANKS", "4"}, {"TESSERA_RANK", "2"}, {"TESSERA_ADDRESS", "node0:29500"}};
  EXPECT_EQ(launch_with(variables)->token, std::nullopt);
  variables["TESSERA_TOKEN"] = "0123456789abcdef";
  EXPECT_EQ(launch_with(variables)->token, "0123456789abcdef");
  for (const char* guessed : {"", "0123456789abcde"}) {
    variables["TESSERA_TOKEN"] = guessed;
    EXPECT_THAT(error_of([&] { launch_with(variables); }),
                ::testing::HasSubstr("expected 16 or more that nobody can guess"));
  }
}

TEST(Launch, RefusesWhatIsNoNumber) {
  for (const std::string value : {"", "eight", "8x", "0", "-1", "99999999999"}) {
    EXPECT_EQ(error_of([&] {
                launch_with({{"TESSERA_RANKS", value}});
              }),
              "TESSERA_RANKS is '" + value + "', expected the number of processes, 1 or more");
    EXPECT_THAT(error_of([&] {
                  launch_with({{"OMPI_COMM_WORLD_SIZE", value}});
                }),
                ::testing::HasSubstr("OMPI_COMM_WORLD_SIZE is"))
        << value;
  }
}

}  // namespace
}  // namespace tessera
