#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/folder_handle.h"

namespace tessera {

/// The state of a checkpoint's folder. A run's folder of checkpoints holds one folder per
/// checkpoint, and its name gives its state:
///
///   step-00000100           complete: gets this name after all its bytes are on the disk
///   step-00000100.partial   being written
///   step-00000100.replaced  complete; gave its name to a newer save of the same step, and counts
///                           only if that save is missing or broken
///   step-00000100.deleted   being removed
///
/// A process may be killed at any moment. An incomplete folder is never taken for a complete one,
/// and the next save removes it.
enum class FolderState { complete, partial, replaced, deleted };

/// Returns directory/step-00000100 with the suffix of the state.
fs::path checkpoint_path(const fs::path& directory, int64_t step,
                         FolderState state = FolderState::complete);

/// Returns the step in a folder's name, in any state; nothing if it is not a checkpoint's name.
std::optional<int64_t> step_of_name(const fs::path& folder);

/// Returns what is wrong with the name of a checkpoint's folder whose manifest has this step: the
/// name has another step, or says that the folder is being written or removed. Empty if nothing is
/// wrong, and for a name that is not of this form, because users may rename a checkpoint.
std::string name_problem(const fs::path& folder, int64_t step);

/// Returns the folders in the states partial and deleted, of a running or of a killed process.
std::vector<fs::path> unfinished_checkpoints(const fs::path& directory);

struct FoundCheckpoint {
  int64_t step = 0;
  fs::path path;
};

/// A folder named as a complete or replaced checkpoint, which it is not: its manifest is missing,
/// damaged or of another step, or a file is missing or of another size.
struct BrokenCheckpoint {
  int64_t step = 0;
  fs::path path;
  std::string problem;  // a sentence for the user
};

/// The checkpoints of a folder, oldest first. Their manifests have been read and the sizes of their
/// files checked, but not the contents (see verify_checkpoint).
struct CheckpointListing {
  std::vector<FoundCheckpoint> complete;
  std::vector<BrokenCheckpoint> broken;
};

/// Returns the checkpoints of a folder; none if it does not exist. A checkpoint that another
/// process removes meanwhile is not listed as broken. Throws Error when the folder cannot be read.
CheckpointListing list_checkpoints(const fs::path& directory);

/// The newest complete checkpoint, and the broken ones that are not older, of which callers warn.
struct LatestCheckpoint {
  std::optional<fs::path> path;
  std::vector<BrokenCheckpoint> newer_broken;
};
LatestCheckpoint latest_checkpoint(const fs::path& directory);

/// Returns whether a checkpoint that could not be read was removed or replaced meanwhile, as by the
/// process that trains. `handle` was opened before the checkpoint was read.
bool was_removed(const fs::path& checkpoint, const FolderHandle& handle);

/// Locks a folder of checkpoints for one process that changes it, if the file system has locks. The
/// system releases the lock when the process dies. Throws Error when another process holds it.
class CheckpointLock {
 public:
  explicit CheckpointLock(const fs::path& directory);
  /// Locks any folder. `busy_message` is the error's message when another process holds the lock.
  CheckpointLock(const fs::path& directory, const std::string& busy_message);

  /// Returns whether `path` is the locked folder, which may have been renamed or removed since.
  bool is_at(const fs::path& path) const { return lock_.is_at(path); }

 private:
  FileLock lock_;
};

/// Cleans up after killed processes; the caller holds the lock. Removes partial folders, deleted
/// ones (if it can), and replaced ones whose newer save is complete. Gives a replaced folder its
/// name back if there is no newer save. Never removes a folder because it could not be read.
void remove_stale_checkpoints(const fs::path& directory);

/// Renames a folder within its parent folder. Throws Error when that fails.
void rename_folder(const fs::path& from, const fs::path& to);

/// Removes the folder of the given step. First renames it to ".deleted", durably, so that a
/// half-removed folder is never taken for a complete one. The caller holds the lock.
void discard_checkpoint(const fs::path& path, int64_t step);

/// A rule for the complete checkpoints that are kept. The newest always is.
struct KeepRule {
  int64_t newest = 2;        ///< keep this many of the newest; 0 keeps every checkpoint
  int64_t multiples_of = 0;  ///< keep also those whose step is a multiple of this; 0 for none
};

/// Removes leftovers of killed processes, and then the complete checkpoints that the rule does not
/// keep, oldest first. Returns the paths of these checkpoints. Broken ones stay, so that a person
/// can look at them. A half-removed checkpoint never counts as complete. If a checkpoint cannot be
/// removed, removes the others and then throws Error.
std::vector<fs::path> prune_checkpoints(const fs::path& directory, const KeepRule& rule);

}  // namespace tessera
