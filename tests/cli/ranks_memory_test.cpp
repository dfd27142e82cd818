// What ranks that are threads of one process take of its memory, against what is planned.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "cli/program.h"
#include "config/mesh_of.h"
#include "support/prepared_data.h"
#include "support/rank_plans.h"

namespace tessera {
namespace {

/// The most memory that a program had at once, in bytes. It must end well.
int64_t most_memory(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t process = 0;
  if (::posix_spawn(&process, pointers[0], nullptr, nullptr, pointers.data(), environ) != 0) {
    ADD_FAILURE() << "cannot start " << arguments[0];
    return 0;
  }
  int status = 0;
  rusage used{};
  ::wait4(process, &status, 0, &used);
  EXPECT_EQ(status, 0);
  return int64_t{used.ru_maxrss} << 10;
}

/// With so many sequences in a rank's micro-batch, what 44 more ranks take.
void expect_as_planned(int64_t sequences) {
  const TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const std::vector<std::string> keys{fmt::format("train.micro_batch={}", sequences),
                                      fmt::format("train.global_batch={}", 48 * sequences),
                                      "train.steps=2",
                                      "optimizer.warmup_steps=1",
                                      "run.trace_step=0",
                                      "checkpoint.every=0"};
  int64_t measured = 0, planned = 0;
  for (const int ranks : {4, 48}) {
    const int sign = ranks == 4 ? -1 : 1;
    const std::string text = testing::small_config(folder.path(), fmt::format("run{}", ranks));
    const fs::path file = folder / "config.toml";
    write_file(file, text);
    std::vector<std::string> arguments{TESSERA_PROGRAM, "train",   file.string(),
                                       "--quiet",       "--ranks", std::to_string(ranks)};
    for (const std::string& key : keys) arguments.insert(arguments.end(), {"--set", key});
    measured += sign * most_memory(arguments);
    const RunConfig config = resolve(parse_config(text, "test", keys));
    for (const StepPlan& plan : plans_of_ranks(config, mesh_of(config, ranks))) {
      planned += sign * (plan.memory.arena_bytes + beside_arena_bytes(plan));
    }
  }
  EXPECT_LE(measured, planned);
  EXPECT_GE(measured, planned / 2);
}

TEST(RanksMemory, IsWhatIsPlannedAndLittleLess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' own memory is more";
#endif
  expect_as_planned(1);
  expect_as_planned(32);  // a rank that read the rows of all would take more
}

}  // namespace
}  // namespace tessera
