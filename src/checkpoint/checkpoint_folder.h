#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"

namespace tessera {

/// A run's folder of checkpoints holds one folder a checkpoint. Its name says its state:
///
///   step-00000100           complete: the name is given after all its bytes are on the disk
///   step-00000100.partial   being written
///   step-00000100.replaced  complete; it stood under the name of a newer save of the same step for
///                           the moment between two renames, and counts where the newer is absent
///   step-00000100.deleted   being removed
///
/// A process may be killed at any moment: what is not complete is never taken for complete, and the
/// next save removes it.
enum class FolderState { complete, partial, replaced, deleted };

/// directory/step-00000100 with the suffix of the state.
fs::path checkpoint_path(const fs::path& directory, int64_t step,
                         FolderState state = FolderState::complete);

/// The step that the name of a checkpoint's folder says, of whatever state; nothing for a name that
/// is not a checkpoint's.
std::optional<int64_t> step_of_name(const fs::path& folder);

/// What the name of a checkpoint's folder says against it, given the step of its manifest: another
/// step, or that it is being written or removed. Empty where nothing does.
std::string name_problem(const fs::path& folder, int64_t step);

/// Folders of checkpoints that are being written or removed, or were left so by a process that was
/// killed.
std::vector<fs::path> unfinished_checkpoints(const fs::path& directory);

struct FoundCheckpoint {
  int64_t step = 0;
  fs::path path;
};

/// A folder with the name of a checkpoint but without a valid manifest, or with files missing.
struct BrokenCheckpoint {
  int64_t step = 0;
  fs::path path;
  std::string problem;  // a sentence to show to the user
};

/// The checkpoints of a folder, oldest first. Their manifests were read and their files' sizes
/// checked; their contents were not (see verify_checkpoint).
struct CheckpointListing {
  std::vector<FoundCheckpoint> complete;
  std::vector<BrokenCheckpoint> broken;
};

/// Empty for a folder that does not exist. Throws Error when it cannot be read.
CheckpointListing list_checkpoints(const fs::path& directory);

/// The newest complete checkpoint, and every broken one that is newer, of which a caller should
/// warn before it resumes from the older.
struct LatestCheckpoint {
  std::optional<fs::path> path;
  std::vector<BrokenCheckpoint> newer_broken;
};
LatestCheckpoint latest_checkpoint(const fs::path& directory);

/// Holds a folder of checkpoints for one process that changes it; the system lifts the lock when
/// the process dies. Throws Error when another holds it.
class CheckpointLock {
 public:
  explicit CheckpointLock(const fs::path& directory);
  /// Of another folder; `busy` is the error when another process holds it.
  CheckpointLock(const fs::path& directory, const std::string& busy);

  /// Whether the folder that is locked stands at `path`: it may have been renamed or removed since.
  bool is_at(const fs::path& path) const { return lock_.is_at(path); }

 private:
  FileLock lock_;
};

/// Cleans up after processes that were killed: removes partial and deleted folders, and replaced
/// ones whose newer save is complete; gives a replaced one without a newer its name back. Nothing
/// goes because it could not be read. A deleted folder that cannot be removed stays. The caller
/// holds the lock.
void remove_stale_checkpoints(const fs::path& directory);

/// Renames a folder within its parent folder; throws Error.
void rename_folder(const fs::path& from, const fs::path& to);

/// Removes a folder of the given step: renamed to ".deleted" first, durably, so that what is half
/// removed is never taken for complete. The caller holds the lock.
void discard_checkpoint(const fs::path& path, int64_t step);

}  // namespace tessera
