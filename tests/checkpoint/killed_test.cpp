#include <array>
#include <stdexcept>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/progress.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/save.h"
#include "checkpoint/verify_checkpoint.h"
#include "sample.h"
#include "support/fork_child.h"
#include "support/save_tensors.h"
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

/// A child process that saves, and what it reported.
class Saver {
 public:
  Saver(const fs::path& directory, int64_t seed) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("cannot make a pipe");
    child_ = testing::fork_child();
    if (child_ < 0) throw std::runtime_error("cannot fork");
    if (child_ == 0) {
      ::close(ends[0]);
      try {
        save_until_killed(directory, ends[1], seed);
      } catch (...) {
        ::_exit(1);
      }
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  ~Saver() { ::close(pipe_); }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Waits for a report; false when the child is dead and all its reports are read.
  bool read(Done& done) { return ::read(pipe_, &done, sizeof(done)) == sizeof(done); }

  /// False when the child had ended by itself.
  bool kill() {
    int status = 0;
    return ::kill(child_, SIGKILL) == 0 && ::waitpid(child_, &status, 0) == child_ &&
           WIFSIGNALED(status);
  }

 private:
  pid_t child_ = -1;
  int pipe_ = -1;
};

bool something_was_interrupted(const fs::path& directory) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(directory, code)) {
    if (entry.path().has_extension()) return true;
  }
  return false;
}

/// Checks the newest checkpoint against the last save that was reported done.
void check_newest(const fs::path& directory, const Done& last) {
  EXPECT_TRUE(list_checkpoints(directory).broken.empty());
  const auto latest = latest_checkpoint(directory).path;
  if (last.step == 0 && !latest) return;  // killed within the very first save
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
  load_all(reader, loaded.items());
  EXPECT_TRUE(loaded.same_bytes(expected));
}

TEST(KilledSave, TheNextRunFindsACompleteCheckpointEveryTime) {
  const TemporaryFolder folder;
  const fs::path directory = folder / "checkpoints";
  const CounterRandom random(static_cast<uint64_t>(::getpid()), "moments");
  constexpr int kKills = 100;
  const Stopwatch watch;
  save_checkpoint(folder / "timed", state_of(0, 0), tensors_of(0).items());
  const double save_seconds = watch.seconds();
  Done last{0, 0};
  int interrupted = 0;
  // On a slow machine fewer kills fall into a save: then there are more of them.
  const auto goes_on = [&](int kill) {
    return kill < kKills || (interrupted <= kKills / 10 && kill < 10 * kKills);
  };
  for (int kill = 0; goes_on(kill); ++kill) {
    Saver saver(directory, 1'000'000 * (kill + 1));
    // A random moment of its first, second or third save, or of pruning.
    const auto draw = static_cast<uint64_t>(2 * kill);
    for (uint64_t saves = random.bits(draw) % 3; saves > 0; --saves) {
      ASSERT_TRUE(saver.read(last)) << "the child ended by itself";
    }
    ::usleep(static_cast<useconds_t>(1.5e6 * save_seconds * random.uniform(draw + 1)));
    ASSERT_TRUE(saver.kill()) << "the child ended by itself";
    while (saver.read(last)) continue;
    if (something_was_interrupted(directory)) ++interrupted;
    check_newest(directory, last);
  }
  RecordProperty("interrupted", interrupted);
  EXPECT_GT(interrupted, kKills / 10) << "too few kills fell into a save to show anything";

  save_checkpoint(directory, state_of(1'000'000, 0), tensors_of(0).items());
  EXPECT_FALSE(something_was_interrupted(directory)) << "left behind by the next save";
}

}  // namespace
}  // namespace tessera
