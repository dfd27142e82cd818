#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

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

/// The folder of checkpoints in a run's folder.
inline constexpr std::string_view kCheckpointsName = "checkpoints";

/// `path` itself when it is a checkpoint, the newest complete one in it when it is a folder of
/// checkpoints or a run's folder, which holds such a folder. Throws Error when it is none of these,
/// naming the broken checkpoints.
fs::path find_checkpoint(const fs::path& path);

/// Holds a folder of checkpoints for one process that changes it; the system lifts the lock when
/// the process dies. Throws Error when another holds it.
class CheckpointLock {
 public:
  explicit CheckpointLock(const fs::path& directory);
  /// Of another folder; `busy` is the error when another process holds it.
  CheckpointLock(const fs::path& directory, const std::string& busy);
  ~CheckpointLock();
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

  /// Whether the folder that is locked stands at `path`: it may have been renamed or removed since.
  bool is_at(const fs::path& path) const;

 private:
  int descriptor_ = -1;
};

/// Cleans up after processes that were killed: removes partial and deleted folders and replaced
/// ones that are not needed, and gives needed ones their name back. The caller holds the lock.
void remove_stale_checkpoints(const fs::path& directory);

/// Renames a folder within its parent folder; throws Error.
void rename_folder(const fs::path& from, const fs::path& to);

/// Removes a folder of the given step: renamed to ".deleted" first, durably, so that what is half
/// removed is never taken for complete. The caller holds the lock.
void discard_checkpoint(const fs::path& path, int64_t step);

}  // namespace tessera
