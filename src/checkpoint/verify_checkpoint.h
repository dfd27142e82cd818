#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"

namespace tessera {

/// Something found in a checkpoint.
struct VerifyFinding {
  std::string file;    // its name in the checkpoint's folder
  std::string tensor;  // "GROUP/NAME"; empty when it is about the whole file
  std::string message;
};

struct VerifyReport {
  fs::path checkpoint;
  int64_t step = -1;  // -1 where the manifest cannot be read
  int64_t tensors = 0;
  int64_t bytes = 0;                    // of the tensors
  std::vector<VerifyFinding> problems;  // the checkpoint is damaged
  std::vector<VerifyFinding> warnings;  // it is as it was saved, but look: NaN, infinities, files
                                        // that are not its own
  /// Where the checkpoint is the newest of a folder: all others of it that are broken, and the
  /// newest of the others that is complete by its manifest and its files' sizes.
  std::vector<BrokenCheckpoint> others_broken;
  std::optional<fs::path> other_complete;

  bool ok() const { return problems.empty() && others_broken.empty(); }
  /// Lines for a terminal.
  std::string text() const;
  /// {"checkpoint", "ok", "step", "tensors", "bytes", "problems": [{"file", "tensor", "message"}],
  /// "warnings": [...], "others_broken": [{"checkpoint", "message"}], "other_complete": path or
  /// null}.
  std::string json() const;
};

/// Reads a whole checkpoint: the manifest, the structure of every file and the hash of every
/// header, tensor and extra file, and counts NaN and infinities. A folder whose name says another
/// step, or that it is unfinished, is damaged too. Reports everything that is wrong; throws Error
/// only when `checkpoint` is not a folder.
VerifyReport verify_checkpoint(const fs::path& checkpoint, int threads = 1);

/// verify_checkpoint() of the newest checkpoint by its name in a folder of checkpoints, broken or
/// not: an older one that is complete does not speak for the run. Every other broken one is in the
/// report too. Throws Error when there is none.
VerifyReport verify_newest(const fs::path& directory, int threads = 1);

}  // namespace tessera
