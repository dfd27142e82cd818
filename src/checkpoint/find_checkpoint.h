#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"

namespace tessera {

// A user names a checkpoint by its own path, its run's folder or the run's folder of checkpoints.
// The run's process may remove a checkpoint while another process reads it (see read_chosen()).

/// The name of the folder of checkpoints in a run's folder.
inline constexpr std::string_view kCheckpointsName = "checkpoints";

/// Returns whether a path names one checkpoint, complete or not: it has a manifest or a
/// checkpoint's name.
bool names_checkpoint(const fs::path& path);

/// Returns the folder of checkpoints that a path names: the one in it if `path` is a run's folder,
/// otherwise `path` itself. Throws Error when `path` is not a folder.
fs::path checkpoints_folder(const fs::path& path);

/// The checkpoint that find_checkpoint() chose.
struct ChosenCheckpoint {
  fs::path path;
  /// Newer checkpoints that were skipped because they are broken (see warn_of_newer()).
  std::vector<BrokenCheckpoint> newer_broken;
};

/// Returns `path` itself if it has a manifest, of which only the step is checked. Otherwise returns
/// the newest checkpoint in `path`, a run's folder or a folder of checkpoints, that is complete by
/// its manifest and the sizes of its files. Throws Error, which names the broken checkpoints, when
/// there is none, and for a checkpoint that has another one's name or is being written or removed.
ChosenCheckpoint find_checkpoint(const fs::path& path);

/// Logs a warning for each newer broken checkpoint: the problem, and the checkpoint used instead.
void warn_of_newer(const ChosenCheckpoint& chosen, const Logger& logger);

/// Returns a clause for an error about a damaged checkpoint. It names the newest complete one
/// before it, or says that there is none. Empty if the checkpoint's name has no step.
std::string older_checkpoint_advice(const fs::path& checkpoint);

/// Returns the result of `read`, which reads the checkpoint. Throws RemovedCheckpoint if `read`
/// fails because the checkpoint was removed meanwhile. For a damaged checkpoint throws Error with
/// older_checkpoint_advice(): results of an older one would silently be taken for the newer's.
template <typename Read>
auto read_or_advise(const fs::path& checkpoint, Read&& read) {
  const FolderHandle handle(checkpoint);
  try {
    return read();
  } catch (const DamagedCheckpoint& damaged) {
    if (was_removed(checkpoint, handle)) throw RemovedCheckpoint(checkpoint);
    throw Error("{}{}", damaged.what(), older_checkpoint_advice(checkpoint));
  } catch (const Error&) {
    if (was_removed(checkpoint, handle)) throw RemovedCheckpoint(checkpoint);
    throw;
  }
}

/// Returns the result of `read`, called with the path that find_checkpoint() returns. Warns of
/// newer checkpoints that are broken. If `path` names a folder of checkpoints and the chosen one is
/// removed while it is read, tries again with the one that is then the newest. Otherwise throws as
/// find_checkpoint() and read_or_advise() do.
template <typename Read>
auto read_chosen(const fs::path& path, const Logger& logger, Read&& read) {
  for (;;) {
    const ChosenCheckpoint chosen = find_checkpoint(path);
    warn_of_newer(chosen, logger);
    try {
      return read_or_advise(chosen.path, [&] { return read(chosen.path); });
    } catch (const RemovedCheckpoint&) {
      if (chosen.path == path) throw;
    }
  }
}

}  // namespace tessera
