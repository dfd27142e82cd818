// What a start finds out of the machines of its processes is no part of the configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "config/load_config.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::joined;
using ::testing::Not;

class LevelsOfProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::prepare_small_data(folder_.path());
    write_file(folder_ / "run.toml", testing::small_config(folder_.path()));
  }
  testing::ProgramResult train(int processes, const fs::path& config, int stop_after,
                               const testing::Arguments& more = {}) const {
    testing::Subprocess started(
        joined(
            {TESSERA_RUN_PROCESSES, std::to_string(processes), TESSERA_PROGRAM, "train",
             config.string(), "--quiet", "--set", "train.stop_after=" + std::to_string(stop_after),
             "--set", "train.micro_batch=" + std::to_string(4 / processes)},
            more),
        folder_ / "processes.txt");
    const int status = started.wait();
    return {status, started.output()};
  }

  TemporaryFolder folder_;
};

/// The configuration that a run wrote goes on with twice and with half as many processes, and
/// evaluates on one rank.
TEST_F(LevelsOfProcesses, AreNotWrittenIntoTheConfiguration) {
  const auto first = train(2, folder_ / "run.toml", 2);
  ASSERT_EQ(first.status, 0) << first.output;
  const fs::path config = folder_ / "run" / "config.toml";
  const fs::path saved = folder_ / "run" / "checkpoints" / "step-00000002" / "config.toml";
  for (const fs::path& written : {config, saved}) {
    EXPECT_THAT(load_config(written).parallel.levels, IsEmpty()) << written;
  }
  for (const int processes : {4, 1}) {
    SCOPED_TRACE(processes);
    const auto resumed = train(processes, config, processes == 4 ? 4 : 6, {"--resume"});
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("going on after step"));
    EXPECT_THAT(resumed.output, Not(HasSubstr("parallel.levels")));
    EXPECT_THAT(resumed.output, Not(HasSubstr("data.0"))) << "one machine has one level";
  }
  const auto evaluated =
      testing::run_program(folder_, {"eval", "--checkpoint", (folder_ / "run").string(), "--config",
                                     config.string(), "--ranks", "1"});
  EXPECT_EQ(evaluated.status, 0) << evaluated.output;
}

}  // namespace
}  // namespace tessera
