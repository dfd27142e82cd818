#pragma once

#include <optional>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"
#include "data/shards/recipe.h"
#include "data/tokenizer.h"

namespace tessera {

/// The folder that `prepare` writes, in one of three states: new; partial (work/plan.json stands
/// in it); complete (manifest.json stands in it). While the object lives, no other process
/// prepares into the folder.
class OutputFolder {
 public:
  /// Creates the folder when there is none, and locks it. With `overwrite`, removes everything
  /// that prepare writes. Throws Error when the folder cannot be written or is in use.
  OutputFolder(fs::path folder, bool overwrite);

  const fs::path& path() const { return folder_; }

  /// True when the folder is complete and was made by `recipe`. Throws Error saying what differs
  /// when it was made by another.
  bool is_complete(const Recipe& recipe) const;

  /// Begins, or goes on with, the work of `recipe`. `tokenizer_files` are those that will be
  /// written (none when it is yet to be trained). Throws Error when
  /// the folder holds the work of another recipe, or files that prepare would overwrite.
  void begin(const Recipe& recipe, const std::vector<TokenizerFile>& tokenizer_files);

  /// Whether an earlier run has put the tokenizer that it trained into the folder, and it is still
  /// that one.
  bool holds_trained_tokenizer() const;
  /// Keeps the hash of the trained tokenizer's file, which stands in the folder. Throws Error when
  /// an earlier run kept another: what it has tokenized does not fit this one.
  void keep_trained_hash(const std::string& hash);

  /// "DIR/work/item-00000012".
  fs::path item(int64_t index) const;
  /// Removes work/, after the manifest is written.
  void remove_work();
  /// Removes all that prepare wrote; the folder is new again.
  void remove_all();

 private:
  fs::path work() const { return folder_ / "work"; }
  fs::path plan() const { return work() / "plan.json"; }
  fs::path trained_hash() const { return work() / "tokenizer.xxh3"; }

  fs::path folder_;
  std::optional<FileLock> lock_;
};

}  // namespace tessera
