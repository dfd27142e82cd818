#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include <stdlib.h>

#include "base/file.h"
#include "support/temporary_root.h"

namespace tessera {

/// A folder for one test, below temporary_root(), removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (temporary_root() / "tessera-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("cannot make a temporary folder " + pattern);
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  /// Writes a file below the folder, making the folders on its way, and gives its path.
  std::filesystem::path write(std::string_view name, std::string_view text) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    write_file(path, text);
    return path;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera
