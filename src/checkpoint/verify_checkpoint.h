#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

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

  bool ok() const { return problems.empty(); }
  /// Lines for a terminal.
  std::string text() const;
  /// {"checkpoint", "ok", "step", "tensors", "bytes", "problems": [{"file", "tensor", "message"}],
  /// "warnings": [...]}.
  std::string json() const;
};

/// Reads a whole checkpoint: the manifest, the structure of every file and the hash of every
/// header, tensor and extra file, and counts NaN and infinities. Reports everything that is wrong;
/// throws Error only when `checkpoint` is not a folder.
VerifyReport verify_checkpoint(const fs::path& checkpoint, int threads = 1);

}  // namespace tessera
