#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"

namespace tessera {

/// The folder of checkpoints in a run's folder.
inline constexpr std::string_view kCheckpointsName = "checkpoints";

/// Whether a path names one checkpoint, whole or not, and no folder of them: by the manifest that
/// it holds, or by its own name.
bool names_checkpoint(const fs::path& path);

/// The folder of checkpoints that a path names: itself, or the one in it when it is a run's.
/// Throws Error for what is not a folder.
fs::path checkpoints_folder(const fs::path& path);

/// The checkpoint that a path names.
struct ChosenCheckpoint {
  fs::path path;
  /// What is newer but broken, and was passed over: the caller says so, see warn_of_newer().
  std::vector<BrokenCheckpoint> newer_broken;
};

/// `path` itself when it is a checkpoint, the newest complete one in it when it is a folder of
/// checkpoints or a run's folder. Complete is judged by manifests and sizes; tensors are checked
/// when they are read. Throws Error when it is none of these, naming the broken checkpoints, and
/// when it is a checkpoint under the name of another or one that is being written or removed.
ChosenCheckpoint find_checkpoint(const fs::path& path);

/// Says which newer checkpoints are broken, why, and what is used in their place.
void warn_of_newer(const ChosenCheckpoint& chosen, const Logger& logger);

/// The sentence that says which complete checkpoint stands before this one in its folder; empty
/// where this one's name is not a checkpoint's.
std::string older_checkpoint_advice(const fs::path& checkpoint);

/// What `read` gives, which reads the checkpoint for use. One that turns out to be damaged only
/// now is an Error that also says which older one is complete: it is not taken in silence, because
/// its results would be mistaken for those of the newer.
template <typename Read>
auto read_or_advise(const fs::path& checkpoint, Read&& read) {
  try {
    return read();
  } catch (const DamagedCheckpoint& damaged) {
    throw Error("{}{}", damaged.what(), older_checkpoint_advice(checkpoint));
  }
}

}  // namespace tessera
