#include <algorithm>
#include <array>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/prune.h"
#include "checkpoint/save.h"
#include "checkpoint/verify_checkpoint.h"
#include "sample.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

SampleTensors tensors_of(uint64_t seed) {
  SampleTensors tensors;
  tensors.add("parameters", "w", {64, 256}, DType::bf16);
  tensors.add("optimizer", "w", {64, 256}, DType::f32);
  tensors.fill(seed);
  return tensors;
}

CheckpointState state_of(int64_t step, int64_t seed) {
  CheckpointState state;
  state.step = step;
  state.values["seed"] = seed;
  return state;
}

/// A child's report that a save was done.
struct Done {
  int64_t step;
  int64_t seed;
};

/// Goes on from the newest checkpoint as a training run does: saves, replaces, prunes, for ever.
[[noreturn]] void save_until_killed(const fs::path& directory, int pipe, int64_t seed) {
  int64_t step = 0;
  if (const auto latest = latest_checkpoint(directory).path) {
    step = CheckpointReader(*latest).state().step;
  }
  // One thread: OpenMP's team does not survive a fork.
  const SaveOptions options{.file_bytes = 1 << 14, .threads = 1};
  for (;; ++seed) {
    if (seed % 3 != 0) ++step;  // every third save replaces the checkpoint before it
    const SampleTensors tensors = tensors_of(static_cast<uint64_t>(seed));
    save_checkpoint(directory, state_of(step, seed), tensors.items(), {}, options);
    const Done done{step, seed};
    if (::write(pipe, &done, sizeof(done)) != sizeof(done)) ::_exit(2);
    prune_checkpoints(directory, {.newest = 2});
  }
}

TEST(KilledSave, TheNextRunFindsACompleteCheckpointEveryTime) {
  const TemporaryFolder folder;
  const fs::path directory = folder / "checkpoints";
  const CounterRandom random(::getpid(), "moments");
  constexpr int kKills = 100;
  Done last{0, 0};
  int interrupted = 0;
  int64_t saves = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(ends[0]);
      try {
        save_until_killed(directory, ends[1], 1'000'000 * (kill_number + 1));
      } catch (...) {
        ::_exit(1);
      }
    }
    ::close(ends[1]);
    ::usleep(static_cast<useconds_t>(40'000 * random.uniform(static_cast<uint64_t>(kill_number))));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
    Done done{};
    while (::read(ends[0], &done, sizeof(done)) == sizeof(done)) {
      last = done;
      ++saves;
    }
    ::close(ends[0]);

    for (const auto& entry : fs::directory_iterator(folder.path())) {
      if (!entry.is_directory()) continue;
      for (const auto& checkpoint : fs::directory_iterator(entry.path())) {
        if (checkpoint.path().has_extension()) {
          ++interrupted;
          break;
        }
      }
    }
    EXPECT_TRUE(list_checkpoints(directory).broken.empty());
    const auto latest = latest_checkpoint(directory).path;
    if (last.step == 0 && !latest) continue;
    ASSERT_TRUE(latest.has_value());
    const VerifyReport report = verify_checkpoint(*latest);
    EXPECT_TRUE(report.ok()) << report.text();
    EXPECT_TRUE(report.warnings.empty()) << report.text();
    const CheckpointReader reader(*latest);
    const int64_t seed = reader.state().integer("seed");
    // Seeds rise from save to save: at least as new as what was reported done.
    EXPECT_GE(reader.state().step, last.step);
    EXPECT_GE(seed, last.seed);
    const SampleTensors expected = tensors_of(static_cast<uint64_t>(seed));
    SampleTensors loaded = expected.empty_copy();
    reader.load_all(loaded.items());
    EXPECT_TRUE(loaded.same_bytes(expected));
  }
  RecordProperty("saves", std::to_string(saves));
  RecordProperty("interrupted", interrupted);
  EXPECT_GT(saves, 0);
  EXPECT_GT(interrupted, kKills / 10) << "too few kills fell into a save to show anything";

  save_checkpoint(directory, state_of(1'000'000, 0), tensors_of(0).items());
  for (const auto& entry : fs::directory_iterator(directory)) {
    EXPECT_FALSE(entry.path().has_extension()) << entry.path() << " was left behind";
  }
}

}  // namespace
}  // namespace tessera
