#include "fault/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/save.h"
#include "checkpoint/verify_checkpoint.h"
#include "fault/call_under.h"
#include "sample.h"
#include "support/names_in.h"
#include "support/save_tensors.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using testing::arm_fault;
using testing::call_under;
using testing::CallUnderFault;
using ::testing::Each;
using testing::Fault;
using testing::fault_name;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using testing::names_in;

constexpr SaveOptions kOneThread{.threads = 1};  // OpenMP's team does not survive a fork

SampleTensors tensors_of_seed(uint64_t seed) {
  SampleTensors tensors;
  tensors.add("parameters", "w", {8, 16}, DType::f32);
  tensors.fill(seed);
  return tensors;
}

void save_as(const fs::path& directory, int64_t step, int64_t seed) {
  CheckpointState state;
  state.step = step;
  state.values["seed"] = seed;
  save_checkpoint(directory, state, tensors_of_seed(static_cast<uint64_t>(seed)).items(), {},
                  kOneThread);
}

/// The seed of a checkpoint, all of which is checked.
int64_t seed_of(const fs::path& path) {
  const VerifyReport report = verify_checkpoint(path);
  EXPECT_TRUE(report.ok()) << report.text();
  const CheckpointReader reader(path);
  const int64_t seed = reader.state().integer("seed");
  const SampleTensors expected = tensors_of_seed(static_cast<uint64_t>(seed));
  SampleTensors loaded = expected.empty_copy();
  load_all(reader, loaded.items());
  EXPECT_TRUE(loaded.same_bytes(expected)) << path;
  return seed;
}

CallUnderFault save_under(Fault fault, int64_t at, const fs::path& directory, int64_t step,
                          int64_t seed) {
  return call_under(fault, at, directory, [&] { save_as(directory, step, seed); });
}

/// A folder of checkpoints to save into: what it holds, and what is saved.
struct Scene {
  const char* name;
  void (*make)(const fs::path& directory);
  int64_t step;  // saved with the seed kNew
  int64_t seed;  // of the newest, where the save is not done
};
constexpr int64_t kNew = 9;

const std::vector<Scene> kScenes{
    {"beside an older one", [](const fs::path& d) { save_as(d, 1, 1); }, 2, 1},
    {"in place of one of its step",
     [](const fs::path& d) {
       save_as(d, 1, 1);
       save_as(d, 2, 2);
     },
     2, 2},
    {"after a kill between the two renames of a replacement",
     [](const fs::path& d) {
       save_as(d, 1, 1);
       save_as(d, 2, 2);
       fs::rename(checkpoint_path(d, 2), checkpoint_path(d, 2, FolderState::replaced));
       fs::create_directory(checkpoint_path(d, 2, FolderState::partial));
     },
     2, 2}};

class FaultySave : public ::testing::TestWithParam<Fault> {
 protected:
  // Counted operations are not flushed, so that thousands of saves take seconds.
  FaultySave() : root_(fs::canonical(folder_.path())) { rest(); }
  ~FaultySave() override { arm_fault(Fault::none, 0, ""); }
  void rest() const { arm_fault(Fault::count, 0, root_.c_str()); }

  void check(const Scene& scene, int64_t at, const fs::path& directory,
             const CallUnderFault& ending) {
    SCOPED_TRACE(fmt::format("{}, operation {}: {}", scene.name, at, ending.error));
    const CheckpointListing listing = list_checkpoints(directory);
    EXPECT_THAT(listing.broken, IsEmpty());
    ASSERT_FALSE(listing.complete.empty());
    EXPECT_EQ(listing.complete.front().step, 1);
    EXPECT_EQ(seed_of(listing.complete.front().path), 1);
    const int64_t seed = seed_of(listing.complete.back().path);
    if (!ending.killed && ending.error.empty()) {
      EXPECT_EQ(seed, kNew) << "the save was said to be done";
    } else if (seed != kNew) {
      EXPECT_EQ(seed, scene.seed);
    }
    if (!ending.error.empty()) {
      EXPECT_THAT(ending.error, HasSubstr(directory.string()));
      EXPECT_NE(GetParam(), Fault::cut) << "a short write is no failure";
      if (GetParam() == Fault::fail) {
        const std::string partial = checkpoint_path("", scene.step, FolderState::partial).string();
        EXPECT_TRUE(!fs::exists(directory / partial) || fs::exists(root_ / "scene" / partial))
            << "the failed save keeps space";
      }
    }
    save_as(directory, 3, 3);
    EXPECT_THAT(names_in(directory), Each(MatchesRegex("step-[0-9]+")));
    EXPECT_EQ(seed_of(list_checkpoints(directory).complete.back().path), 3);
  }

  TemporaryFolder folder_;
  fs::path root_;
};

// Every operation of a save in turn.
TEST_P(FaultySave, LeavesACompleteCheckpointAtEveryOperation) {
  for (const Scene& scene : kScenes) {
    scene.make(root_ / "scene");
    int64_t at = 0;
    for (bool hit = true; hit && !HasFailure();) {
      const fs::path directory = root_ / "checkpoints";
      fs::copy(root_ / "scene", directory, fs::copy_options::recursive);
      const CallUnderFault ending = save_under(GetParam(), ++at, directory, scene.step, kNew);
      rest();
      check(scene, at, directory, ending);
      hit = ending.hit;
      fs::remove_all(directory);
    }
    EXPECT_GT(at, 20) << "few operations for a save: does the library see them?";
    fs::remove_all(root_ / "scene");
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultySave,
                         ::testing::Values(Fault::fail, Fault::broken, Fault::cut, Fault::kill),
                         fault_name);

TEST(FaultyRead, IsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  const fs::path root = fs::canonical(folder.path());
  save_as(root / "checkpoints", 1, 1);
  const fs::path path = checkpoint_path(root / "checkpoints", 1);
  const CheckpointReader reader(path);
  SampleTensors loaded = tensors_of_seed(1);
  arm_fault(Fault::broken, 1, (path / "parameters.safetensors").c_str());
  std::string message;
  try {
    load_all(reader, loaded.items());
  } catch (const DamagedCheckpoint& damaged) {
    message = damaged.what();
  }
  const VerifyReport report = verify_checkpoint(path);
  arm_fault(Fault::none, 0, "");
  EXPECT_THAT(message, HasSubstr((path / "parameters.safetensors").string()));
  EXPECT_THAT(message, HasSubstr("Input/output error"));
  EXPECT_THAT(report.text(), HasSubstr("Input/output error"));
  EXPECT_FALSE(report.ok());
}

}  // namespace
}  // namespace tessera
