#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/save.h"
#include "sample.h"
#include "support/error_of.h"
#include "support/names_in.h"
#include "support/save_tensors.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names_in;

void save(const fs::path& directory, int64_t step, uint64_t seed = 1) {
  save_checkpoint(directory, sample_state(step), sample_tensors(seed).items());
}

bool holds(const fs::path& path, uint64_t seed) {
  const SampleTensors expected = sample_tensors(seed);
  SampleTensors loaded = expected.empty_copy();
  load_all(CheckpointReader(path), loaded.items());
  return loaded.same_bytes(expected);
}

std::vector<int64_t> steps_in(const fs::path& directory) {
  std::vector<int64_t> steps;
  for (const auto& found : list_checkpoints(directory).complete) steps.push_back(found.step);
  return steps;
}

TEST(CheckpointFolder, TheNewestIsFoundByNumber) {
  const TemporaryFolder folder;
  EXPECT_EQ(latest_checkpoint(folder / "absent").path, std::nullopt);
  EXPECT_EQ(latest_checkpoint(folder.path()).path, std::nullopt);
  save(folder.path(), 99999999);
  save(folder.path(), 100000000);
  save(folder.path(), 0);
  fs::create_directory(folder / "step-x");
  fs::create_directory(folder / "step-00000001.backup");
  fs::create_directory(folder / "step-99999999999999999999999999");
  write_file(folder / "notes", "");
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(0, 99999999, 100000000));
  EXPECT_EQ(latest_checkpoint(folder.path()).path, folder / "step-100000000");
  EXPECT_EQ(find_checkpoint(folder.path()).path, folder / "step-100000000");
  EXPECT_EQ(find_checkpoint(folder / "step-00000000").path, folder / "step-00000000");
  const TemporaryFolder run;
  fs::create_directory_symlink(folder.path(), run / "checkpoints");
  EXPECT_EQ(find_checkpoint(run.path()).path, run / "checkpoints/step-100000000");
}

TEST(CheckpointFolder, BrokenOnesAreReportedAndPassedOver) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  save(folder.path(), 2);
  save(folder.path(), 3);
  save(folder.path(), 4);
  fs::create_directory(folder / "step-00000005");
  write_file(folder / "step-00000004/manifest.json", "{}");
  fs::remove(folder / "step-00000003/optimizer.safetensors");
  write_file(folder / "step-00000001/manifest.json", "{}");
  fs::rename(folder / "step-00000002", folder / "step-00000006");
  save(folder.path(), 2);
  const LatestCheckpoint latest = latest_checkpoint(folder.path());
  EXPECT_EQ(latest.path, folder / "step-00000002");
  ASSERT_EQ(latest.newer_broken.size(), 4);
  EXPECT_THAT(latest.newer_broken[0].problem, HasSubstr("optimizer.safetensors is missing"));
  EXPECT_THAT(latest.newer_broken[1].problem, HasSubstr("step-00000004/manifest.json is damaged"));
  EXPECT_THAT(latest.newer_broken[2].problem, HasSubstr("step-00000005"));
  EXPECT_THAT(latest.newer_broken[3].problem, HasSubstr("holds the checkpoint of step 2"));
  EXPECT_EQ(list_checkpoints(folder.path()).broken.size(), 5);
  EXPECT_EQ(find_checkpoint(folder.path()).path, folder / "step-00000002");
  EXPECT_EQ(find_checkpoint(folder.path()).newer_broken.size(), 4);

  fs::remove_all(folder / "step-00000002");
  EXPECT_THAT(error_of([&] { find_checkpoint(folder.path()); }),
              HasSubstr("optimizer.safetensors is missing"));
  EXPECT_THAT(error_of([&] { find_checkpoint(folder / "absent"); }), HasSubstr("not a folder"));
  write_file(folder / "file", "");
  EXPECT_THAT(error_of([&] { list_checkpoints(folder / "file"); }), HasSubstr("cannot list"));
}

TEST(CheckpointFolder, WhatKilledProcessesLeaveNeverCountsAndIsRemoved) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  // Even whole contents do not count before the folder has its name, or after it lost it.
  fs::copy(folder / "step-00000001", folder / "step-00000002.partial");
  fs::copy(folder / "step-00000001", folder / "step-00000003.deleted");
  fs::create_directory(folder / "step-00000004.partial");
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1));
  EXPECT_THAT(list_checkpoints(folder.path()).broken, IsEmpty());
  save(folder.path(), 5);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000001", "step-00000005"));
}

// The moments of replacing a checkpoint, between any two of which a process may be killed.
TEST(CheckpointFolder, EveryMomentOfReplacingHasACompleteCheckpoint) {
  const TemporaryFolder folder;
  const fs::path name = folder / "step-00000001";
  const fs::path partial = folder / "step-00000001.partial";
  const fs::path replaced = folder / "step-00000001.replaced";
  save(folder / "new", 1, 2);
  save(folder.path(), 1, 1);
  fs::copy(folder / "new/step-00000001", partial);
  EXPECT_TRUE(holds(*latest_checkpoint(folder.path()).path, 1));
  fs::rename(name, replaced);
  EXPECT_EQ(latest_checkpoint(folder.path()).path, replaced);
  EXPECT_TRUE(holds(*latest_checkpoint(folder.path()).path, 1));
  {  // Killed here: the next change of the folder gives the old one its name back.
    const TemporaryFolder killed;
    fs::copy(folder.path(), killed.path(), fs::copy_options::recursive);
    fs::remove_all(killed / "new");
    prune_checkpoints(killed.path(), {});
    EXPECT_THAT(names_in(killed.path()), ElementsAre("step-00000001"));
    EXPECT_TRUE(holds(killed / "step-00000001", 1));
  }
  fs::rename(partial, name);
  EXPECT_EQ(latest_checkpoint(folder.path()).path, name);
  EXPECT_TRUE(holds(name, 2));
  save(folder.path(), 2);  // Killed here: the old one is removed.
  EXPECT_THAT(names_in(folder.path()), ElementsAre("new", "step-00000001", "step-00000002"));
  EXPECT_TRUE(holds(name, 2));
}

TEST(CheckpointFolder, ABrokenCheckpointIsReplacedAndACompleteOneBesideItKept) {
  const TemporaryFolder folder;
  save(folder.path(), 1, 1);
  fs::rename(folder / "step-00000001", folder / "step-00000001.replaced");
  fs::create_directory(folder / "step-00000001");
  EXPECT_EQ(latest_checkpoint(folder.path()).path, folder / "step-00000001.replaced");
  save(folder.path(), 2, 2);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1, 2));
  save(folder.path(), 1, 3);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_TRUE(holds(folder / "step-00000001", 3));
}

TEST(CheckpointFolder, WhatCannotBeReadIsNotRemoved) {
  const TemporaryFolder folder;
  save(folder.path(), 1, 1);
  fs::rename(folder / "step-00000001", folder / "step-00000001.replaced");
  write_file(folder / "step-00000001.replaced/manifest.json", "{}");
  prune_checkpoints(folder.path(), {.newest = 1});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000001"));
  EXPECT_EQ(list_checkpoints(folder.path()).broken.size(), 1);
}

TEST(CheckpointFolder, OneProcessAtATimeChangesIt) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  {
    const CheckpointLock lock(folder.path());
    EXPECT_THAT(error_of([&] { save(folder.path(), 2); }), HasSubstr("another process"));
    EXPECT_THAT(error_of([&] { prune_checkpoints(folder.path(), {}); }),
                HasSubstr("another process"));
    EXPECT_TRUE(holds(*latest_checkpoint(folder.path()).path, 1));
  }
  save(folder.path(), 2);
}

TEST(RemovedMeanwhile, IsNoBrokenCheckpointOfAListing) {
  const TemporaryFolder folder;
  for (const int64_t step : {1, 2, 3}) save(folder.path(), step);
  const fs::path name = checkpoint_path(folder.path(), 1);
  const fs::path deleted = checkpoint_path(folder.path(), 1, FolderState::deleted);
  for (int i = 0; i < 100; ++i) {
    std::atomic<bool> listing_begins{false};
    std::thread other([&] {
      listing_begins.wait(false);
      fs::rename(name, deleted);
    });
    listing_begins = true;
    listing_begins.notify_one();
    const CheckpointListing listing = list_checkpoints(folder.path());
    EXPECT_EQ(listing.broken.size(), 0U) << listing.broken.front().problem;
    EXPECT_EQ(listing.complete.back().step, 3);
    other.join();
    fs::rename(deleted, name);
  }
}

TEST(RemovedMeanwhile, TheNewestIsChosenAgainAndOneThatWasNamedIsAnError) {
  const TemporaryFolder folder;
  for (const int64_t step : {1, 2}) save(folder.path(), step);
  std::vector<int64_t> steps;
  const auto read = [&](const fs::path& checkpoint) {
    const int64_t step = *step_of_name(checkpoint);
    steps.push_back(step);
    if (step == 2) {  // the trainer goes on while it is read
      save(folder.path(), 3);
      prune_checkpoints(folder.path(), {.newest = 1});
    }
    return CheckpointReader(checkpoint).state().step;
  };
  EXPECT_EQ(read_chosen(folder.path(), Logger::silent(), read), 3);
  EXPECT_THAT(steps, ElementsAre(2, 3));

  const fs::path named = checkpoint_path(folder.path(), 3);
  const auto removing = [&](const fs::path& checkpoint) {
    discard_checkpoint(checkpoint, 3);
    return CheckpointReader(checkpoint).state().step;
  };
  EXPECT_THAT(error_of([&] { read_chosen(named, Logger::silent(), removing); }),
              HasSubstr(named.string() + " was removed while it was read"));
}

TEST(RemovedMeanwhile, OnlyWhatIsGoneIsSaidToBe) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  const fs::path path = checkpoint_path(folder.path(), 1);
  fs::remove(path / "manifest.json");
  EXPECT_EQ(list_checkpoints(folder.path()).broken.size(), 1U);
  fs::remove_all(path);
  fs::create_symlink("nowhere", path);
  const CheckpointListing listing = list_checkpoints(folder.path());
  ASSERT_EQ(listing.broken.size(), 1U);
  EXPECT_THAT(listing.broken[0].problem, HasSubstr("is a link to nowhere, which is not there"));
}

TEST(CheckpointFolder, AFolderThatIsMovedAwayWhileItIsSavedToGetsNoCheckpoint) {
  const TemporaryFolder folder;
  const fs::path directory = folder / "run";
  const auto state = sample_state(1);
  {
    SharedSave shared(directory, state.step);
    const auto tensors = sample_tensors(1);
    std::vector<TensorToSave> streams;
    for (const NamedTensor& item : tensors.items()) {
      streams.push_back(whole_to_save(item.group, stream_of({item.name, item.tensor})));
    }
    CheckpointManifest written = write_part(shared.folder(), state.step, streams, {}, {});
    fs::rename(directory, folder / "moved");
    fs::copy(folder / "moved", directory, fs::copy_options::recursive);  // as another run's
    EXPECT_THAT(error_of([&] { shared.commit(state, std::move(written), {}); }),
                HasSubstr(directory.string() + " was moved or removed while"));
  }
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001.partial")) << "another run's stay";
}

TEST(Prune, KeepsTheNewestAndTheMultiples) {
  const TemporaryFolder folder;
  for (int64_t step = 10; step <= 80; step += 10) save(folder.path(), step);
  EXPECT_THAT(prune_checkpoints(folder.path(), {.newest = 0}), IsEmpty());
  EXPECT_THAT(prune_checkpoints(folder.path(), {.newest = 8}), IsEmpty());
  EXPECT_THAT(prune_checkpoints(folder.path(), {.newest = 3, .multiples_of = 40}),
              ElementsAre(folder / "step-00000010", folder / "step-00000020",
                          folder / "step-00000030", folder / "step-00000050"));
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(40, 60, 70, 80));
  prune_checkpoints(folder.path(), {.newest = 1});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000080"));
  EXPECT_THAT(prune_checkpoints(folder / "absent", {}), IsEmpty());
}

TEST(Prune, BrokenOnesNeitherCountNorGo) {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 4; ++step) save(folder.path(), step);
  write_file(folder / "step-00000004/manifest.json", "{}");
  write_file(folder / "step-00000001/manifest.json", "{}");
  fs::create_directory(folder / "step-00000002.deleted");
  prune_checkpoints(folder.path(), {.newest = 1});
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("step-00000001", "step-00000003", "step-00000004"));
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(3));
}

}  // namespace
}  // namespace tessera
