#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/partial_folder.h"

namespace tessera::hugging_face {

/// A new folder of files that appears whole or not at all: they are written into one beside it,
/// ".tessera-partial" after its name, which publish() renames. It is locked, so that of several
/// processes with one output the first writes it and the others are refused; what a process that
/// was killed left in it is removed.
class OutputFolder {
 public:
  /// Throws Error, before anything is created, when `output` cannot become the folder: it is empty,
  /// holds something, is the current folder, a mount point or a link to nothing. A link to a folder
  /// stands for that folder. Throws Error when another process is writing it.
  explicit OutputFolder(const fs::path& output);

  /// Where files are written.
  const fs::path& path() const { return partial_->path(); }

  /// Gives the folder its name. `files` are all that it must hold, with their bytes. Throws Error
  /// when one is missing or of another size, or the output was taken meanwhile.
  void publish(const std::map<std::string, int64_t>& files);

 private:
  fs::path place_;  // absolute, without links
  fs::path partial_path_;
  std::optional<CreatedFolders> parents_;
  std::optional<CheckpointLock> lock_;
  std::optional<PartialFolder> partial_;  // its end comes before the lock's
};

}  // namespace tessera::hugging_face
