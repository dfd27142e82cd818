#pragma once

#include <utility>

#include "base/file.h"

namespace tessera {

/// A folder that is written into. Unless keep() is called its destructor removes it, which also
/// gives the space of a writing that failed back.
class PartialFolder {
 public:
  explicit PartialFolder(fs::path path) : path_(std::move(path)) { ensure_directory(path_); }
  ~PartialFolder() {
    std::error_code ignored;  // the failure's own error is the one to report
    if (!kept_) fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  fs::path path_;
  bool kept_ = false;
};

}  // namespace tessera
