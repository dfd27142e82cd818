#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/folder_handle.h"

namespace tessera {

/// A folder to write files into. Unless keep() was called, the destructor removes it, so that a
/// failed write frees its disk space. A folder that was moved or replaced meanwhile stays.
class PartialFolder {
 public:
  explicit PartialFolder(fs::path path) : path_(std::move(path)) {
    ensure_directory(path_);
    handle_.emplace(path_);
  }
  ~PartialFolder() {
    std::error_code ignored;  // the failure's own error is the one to report
    if (!kept_ && handle_->is_at(path_)) fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  fs::path path_;
  std::optional<FolderHandle> handle_;
  bool kept_ = false;
};

/// Creates a folder and its missing parents, for results whose writing may fail. Unless keep() was
/// called, the destructor removes those of the created folders that are empty.
class CreatedFolders {
 public:
  explicit CreatedFolders(const fs::path& path) {
    std::error_code code;
    for (fs::path at = path; !at.empty() && !fs::exists(at, code); at = at.parent_path()) {
      created_.push_back(at);
    }
    ensure_directory(path);
  }
  ~CreatedFolders() {
    for (const fs::path& path : created_) {
      std::error_code ignored;  // the failure's own error is the one to report
      if (!kept_) fs::remove(path, ignored);
    }
  }
  CreatedFolders(const CreatedFolders&) = delete;
  CreatedFolders& operator=(const CreatedFolders&) = delete;
  /// Keeps the created folders and makes them durable.
  void keep() {
    kept_ = true;
    for (const fs::path& path : created_) {
      // "a/b" and "a/b/" both become "a/b/". Its parent_path() is "a/b", and the next one is "a".
      const fs::path parent = (path / ".").lexically_normal().parent_path().parent_path();
      sync_directory(parent.empty() ? fs::path(".") : parent);
    }
  }

 private:
  std::vector<fs::path> created_;  // innermost first
  bool kept_ = false;
};

}  // namespace tessera
