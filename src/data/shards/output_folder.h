#pragma once

#include <optional>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"
#include "data/shards/recipe.h"
#include "data/tokenizer.h"

namespace tessera {

/// The folder that `prepare` writes. It is in one of three states: new, partial (it contains
/// work/plan.json) or complete (it contains manifest.json). Files in work/ are kept only until the
/// folder is complete: the plan, which is the recipe of the data, and the work items (work_item.h).
/// The object locks the folder against other processes, if the file system supports locks.
class OutputFolder {
 public:
  /// Creates the folder if it is missing, and locks it. With `overwrite`, removes everything that
  /// prepare writes. Throws Error when the folder cannot be written or is in use.
  OutputFolder(fs::path folder, bool overwrite);

  const fs::path& path() const { return folder_; }
  /// Throws Error unless the folder is still at its path. Call it before the manifest is written:
  /// if the folder was moved away meanwhile, another process may be using the path.
  void require_held() const;
  /// Returns whether the folder is complete and was made by `recipe`. Throws Error when the folder
  /// was made by a different recipe, naming the differences.
  bool is_complete(const Recipe& recipe) const;

  /// Begins the work of `recipe`, or continues it. `tokenizer_files` are the files that will be
  /// written (none if the tokenizer is still to be trained). Throws Error when the folder holds the
  /// work of another recipe, or files that prepare would overwrite.
  void begin(const Recipe& recipe, const std::vector<TokenizerFile>& tokenizer_files);

  /// Returns whether the folder holds the tokenizer that an earlier run trained, unchanged.
  bool holds_trained_tokenizer() const;
  /// Stores the hash of the trained tokenizer's file, which is already in the folder. Throws Error
  /// when an earlier run stored another hash: the items it tokenized do not fit this tokenizer.
  void keep_trained_hash(const std::string& hash);

  /// Returns the path of the file of an item in work/: item-00000012.
  fs::path item_path(int64_t index) const;
  /// Removes prepare's files from work/, and then work/ itself if it is empty.
  void remove_work();
  /// Removes everything that prepare wrote. The folder is new again.
  void remove_all();

 private:
  fs::path work_folder() const { return folder_ / "work"; }
  fs::path plan_path() const { return work_folder() / "plan.json"; }
  fs::path trained_hash_path() const { return work_folder() / "tokenizer.xxh3"; }

  fs::path folder_;
  std::optional<FileLock> lock_;
};

}  // namespace tessera
