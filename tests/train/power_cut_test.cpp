// What is on the disk at the moment when a checkpoint appears. The calls that bring files there are
// defined here, in front of the system's, and noted.
#include <map>
#include <mutex>
#include <set>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/prepared_data.h"
#include "train/trainer.h"

namespace tessera {
namespace {

/// What a disk would hold if the power were cut now, of the files below one folder.
class Disk {
 public:
  explicit Disk(fs::path watched) : watched_(std::move(watched)) { current = this; }
  ~Disk() { current = nullptr; }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  /// A file's bytes, or a folder's names, are on the disk from now on.
  void flushed(int descriptor) {
    const std::lock_guard lock(mutex_);
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) return;
    if (S_ISREG(status.st_mode)) bytes_[status.st_ino] = status.st_size;
    if (!S_ISDIR(status.st_mode)) return;
    std::set<ino_t>& names = names_[status.st_ino];
    names.clear();
    const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
    for (const auto& entry : fs::directory_iterator(path)) names.insert(inode(entry.path()));
  }

  /// Notes what is missing when a folder gets the name of a complete checkpoint.
  void renamed(const fs::path& to) {
    const std::lock_guard lock(mutex_);
    if (to.parent_path().filename() != "checkpoints" || to.has_extension()) return;
    ++checkpoints;
    for (const char* name : {"metrics.jsonl", "metrics.csv"}) check(watched_ / name);
    for (const auto& entry : fs::directory_iterator(watched_ / "tensorboard")) check(entry.path());
    check_name(watched_);
    check_name(watched_ / "tensorboard");
  }

  int checkpoints = 0;
  std::set<std::string> missing;
  static Disk* current;

 private:
  static ino_t inode(const fs::path& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
  }
  void check(const fs::path& file) {
    const auto found = bytes_.find(inode(file));
    if (found == bytes_.end() || found->second != static_cast<off_t>(fs::file_size(file))) {
      missing.insert("bytes of " + file.string());
    }
    check_name(file);
  }
  void check_name(const fs::path& path) {
    if (!names_[inode(path.parent_path())].contains(inode(path))) {
      missing.insert("name of " + path.string());
    }
  }

  fs::path watched_;
  std::mutex mutex_;
  std::map<ino_t, off_t> bytes_;
  std::map<ino_t, std::set<ino_t>> names_;
};

Disk* Disk::current = nullptr;

TEST(PowerCut, LeavesTheMetricsUpToTheCheckpointThatAppeared) {
  const TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const std::vector<std::string> overrides{"train.steps=6", "optimizer.warmup_steps=1",
                                           "checkpoint.every=2", "run.csv=true"};
  const RunConfig config = parse_config(testing::small_config(folder.path()), "test", overrides);
  Disk disk(folder / "run");
  train(config, {.progress = false}, Logger());
  EXPECT_EQ(disk.checkpoints, 3);
  EXPECT_EQ(disk.missing, std::set<std::string>());
}

}  // namespace
}  // namespace tessera

extern "C" int fsync(int descriptor) {
  const auto result = static_cast<int>(::syscall(SYS_fsync, descriptor));
  if (result == 0 && tessera::Disk::current != nullptr) {
    tessera::Disk::current->flushed(descriptor);
  }
  return result;
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (tessera::Disk::current != nullptr) tessera::Disk::current->renamed(to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
