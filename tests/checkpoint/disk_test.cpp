#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/save.h"
#include "checkpoint/verify_checkpoint.h"
#include "sample.h"
#include "support/error_of.h"
#include "support/file_size_limit.h"
#include "support/save_tensors.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

/// A small file system in memory, while it lives.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& path) : path_(path) {
    fs::create_directory(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  int64_t free_bytes() const { return static_cast<int64_t>(fs::space(path_).available); }

 private:
  fs::path path_;
  bool mounted_ = false;
};

/// The process without the right to write everywhere, while it lives.
class OrdinaryUser {
 public:
  OrdinaryUser() {
    if (::geteuid() == 0) changed_ = ::seteuid(65534) == 0;
  }
  ~OrdinaryUser() {
    if (changed_) (void)!::seteuid(0);
  }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;

 private:
  bool changed_ = false;
};

SampleTensors large_tensors(int64_t rows) {
  SampleTensors tensors;
  tensors.add("parameters", "w", {rows, 1024}, DType::f32);
  tensors.add("optimizer", "w", {rows, 1024}, DType::f32);
  tensors.fill(1);
  return tensors;
}

TEST(FullDisk, IsAClearErrorAndLeavesTheOlderCheckpoint) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder / "disk");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not allowed here";
  const fs::path directory = folder / "disk/checkpoints";
  const fs::path older = save_checkpoint(directory, sample_state(1), large_tensors(20).items());
  const int64_t before = disk.free_bytes();
  const std::string message =
      error_of([&] { save_checkpoint(directory, sample_state(2), large_tensors(200).items()); });
  EXPECT_THAT(message, HasSubstr("No space left on device"));
  EXPECT_THAT(message, HasSubstr("step-00000002.partial"));
  EXPECT_EQ(disk.free_bytes(), before) << "the failed save keeps space";
  EXPECT_FALSE(fs::exists(directory / "step-00000002.partial"));
  EXPECT_EQ(latest_checkpoint(directory).path, older);
  EXPECT_TRUE(verify_checkpoint(older).ok());
  save_checkpoint(directory, sample_state(2), large_tensors(20).items());
  EXPECT_EQ(latest_checkpoint(directory).path, directory / "step-00000002");
}

TEST(FailedWrite, IsAClearErrorAndLeavesTheOlderCheckpoint) {
  const TemporaryFolder folder;
  const fs::path directory = folder / "checkpoints";
  const fs::path older = save_checkpoint(directory, sample_state(1), large_tensors(20).items());
  const SampleTensors larger = large_tensors(200);
  for (const int64_t step : {1, 2}) {
    std::string message;
    {
      const FileSizeLimit limit(100'000);
      message = error_of([&] { save_checkpoint(directory, sample_state(step), larger.items()); });
    }
    EXPECT_THAT(message, HasSubstr("File too large"));
    EXPECT_THAT(message, HasSubstr(fmt::format("step-{:08}.partial", step)));
    EXPECT_EQ(latest_checkpoint(directory).path, older);
    EXPECT_TRUE(verify_checkpoint(older).ok());
    EXPECT_EQ(std::distance(fs::directory_iterator(directory), fs::directory_iterator()), 1);
  }
  save_checkpoint(directory, sample_state(2), larger.items());
  EXPECT_EQ(latest_checkpoint(directory).path, directory / "step-00000002");
}

TEST(FullDisk, AtAnyPointOfASave) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder / "disk");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not allowed here";
  const fs::path directory = folder / "disk/checkpoints";
  const SampleTensors tensors = large_tensors(3);
  const fs::path older = save_checkpoint(directory, sample_state(1), tensors.items());
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  int failures = 0;
  bool done = false;
  for (size_t pages = 0; pages < 64 && !done; ++pages) {
    fs::remove(folder / "disk/filler");
    const auto filler = static_cast<size_t>(disk.free_bytes()) - pages * page;
    std::ofstream(folder / "disk/filler") << std::string(filler, 'x');
    try {
      // The same step: what is replaced must stay until the new one is whole.
      save_checkpoint(directory, sample_state(1), tensors.items());
      done = true;
    } catch (const Error& error) {
      ++failures;
      EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
    }
    EXPECT_EQ(latest_checkpoint(directory).path, older);
    EXPECT_TRUE(verify_checkpoint(older).ok());
    EXPECT_EQ(std::distance(fs::directory_iterator(directory), fs::directory_iterator()), 1);
  }
  EXPECT_TRUE(done);
  EXPECT_GT(failures, 5);
}

TEST(UnwritableFolder, IsAClearError) {
  const TemporaryFolder folder;
  const SampleTensors tensors = large_tensors(1);
  const fs::path directory = folder / "checkpoints";
  const fs::path older = save_checkpoint(directory, sample_state(1), tensors.items());
  save_checkpoint(directory, sample_state(2), tensors.items());
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(directory, fs::perms(0555));
  {
    const OrdinaryUser user;
    const std::string message =
        error_of([&] { save_checkpoint(directory, sample_state(3), tensors.items()); });
    EXPECT_THAT(message, HasSubstr("Permission denied"));
    EXPECT_THAT(message, HasSubstr("checkpoints/step-00000003.partial"));
    EXPECT_THAT(error_of([&] { save_checkpoint(directory / "new", sample_state(3), {}); }),
                HasSubstr("Permission denied"));
    EXPECT_THAT(error_of([&] { save_checkpoint(directory, sample_state(1), tensors.items()); }),
                HasSubstr("Permission denied"));
    EXPECT_THAT(error_of([&] { prune_checkpoints(directory, {.newest = 1}); }),
                HasSubstr("Permission denied"));
    EXPECT_TRUE(verify_checkpoint(older).ok());
  }
  fs::permissions(directory, fs::perms(0000));
  {
    const OrdinaryUser user;
    for (const auto& message : {error_of([&] { list_checkpoints(directory); }), error_of([&] {
                                  save_checkpoint(directory, sample_state(3), tensors.items());
                                }),
                                error_of([&] { find_checkpoint(directory); })}) {
      EXPECT_THAT(message, HasSubstr("Permission denied"));
    }
  }
  fs::permissions(directory, fs::perms(0755));
  write_file(folder / "file", "");
  EXPECT_THAT(error_of([&] { save_checkpoint(folder / "file", sample_state(3), {}); }),
              HasSubstr("file"));
  EXPECT_THAT(error_of([&] { save_checkpoint(folder / "file/below", sample_state(3), {}); }),
              HasSubstr("file/below"));
}

}  // namespace
}  // namespace tessera
