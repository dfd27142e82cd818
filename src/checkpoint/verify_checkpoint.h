#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"

namespace tessera {

/// A finding about a checkpoint.
struct VerifyFinding {
  std::string file;    // its name in the checkpoint's folder
  std::string tensor;  // "GROUP/NAME"; empty if it concerns the whole file
  std::string message;
};

/// What verify_checkpoint() or verify_newest() found.
struct VerifyReport {
  fs::path checkpoint;
  int64_t step = -1;  // -1 if the manifest cannot be read
  int64_t tensors = 0;
  int64_t bytes = 0;                    // of the tensors
  std::vector<VerifyFinding> problems;  // damage of the checkpoint
  std::vector<VerifyFinding> warnings;  // as saved, but suspicious: NaN, infinities, foreign files
  // Set by verify_newest(), about the other checkpoints of the folder: all broken ones, and the
  // newest that is complete by its manifest and the sizes of its files.
  std::vector<BrokenCheckpoint> others_broken;
  std::optional<fs::path> other_complete;

  bool ok() const { return problems.empty() && others_broken.empty(); }
  std::string text() const;
  /// Returns the report as {"checkpoint", "ok", "step", "tensors", "bytes", "problems": [{"file",
  /// "tensor", "message"}], "warnings": [...], "others_broken": [{"checkpoint", "message"}],
  /// "other_complete": path or null}.
  std::string json() const;
};

/// Reads a whole checkpoint and returns all problems: of the manifest, the structure of every file,
/// the hash of every header, tensor and extra file, and the folder's name. If the manifest cannot
/// be read, that is the only problem. Counts NaN and infinities. Throws Error only when
/// `checkpoint` is not a folder or is removed meanwhile.
VerifyReport verify_checkpoint(const fs::path& checkpoint, int threads = 1);

/// Verifies the checkpoint of a folder whose name has the highest step, even if it is broken: a
/// complete older one says nothing about the newest state. The report also lists every other broken
/// checkpoint. Throws Error when there is no checkpoint.
VerifyReport verify_newest(const fs::path& directory, int threads = 1);

/// Verifies the checkpoint that `path` names, or the newest of a run's folder (verify_newest()).
VerifyReport verify_named(const fs::path& path, int threads = 1);

}  // namespace tessera
