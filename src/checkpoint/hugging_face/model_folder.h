#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/partial_folder.h"

namespace tessera::hugging_face {

/// A new folder of files that appears whole or not at all. The files are written into a partial
/// folder beside it, whose name ends in ".tessera-partial", and publish() renames that folder. The
/// partial folder is locked: if several processes have the same output, the first writes it, and
/// the constructor throws in the others. The constructor removes files that a killed process left
/// there.
class ModelFolder {
 public:
  /// Throws Error, before anything is created, when `output` cannot become the folder: it is an
  /// empty path, a folder with content, the current folder, a mount point or a link to nothing. A
  /// link to a folder stands for that folder. Throws Error also when another process is writing the
  /// output.
  explicit ModelFolder(const fs::path& output);

  /// Returns the folder to write files into.
  const fs::path& path() const { return partial_->path(); }

  /// Gives the folder its final name. `files` are the files that it must hold, with their sizes in
  /// bytes. Throws Error when a file is missing or has another size, and when another folder has
  /// taken the name meanwhile.
  void publish(const std::map<std::string, int64_t>& files);

 private:
  fs::path final_path_;  // absolute, without links
  fs::path partial_path_;
  std::optional<CreatedFolders> parents_;  // those that did not exist before
  std::optional<CheckpointLock> lock_;
  std::optional<PartialFolder> partial_;  // destroyed before the lock
};

}  // namespace tessera::hugging_face
