#include "checkpoint/hugging_face/model_folder.h"

#include <sys/stat.h>

#include "base/error.h"

namespace tessera::hugging_face {
namespace {

constexpr std::string_view kPartialSuffix = ".tessera-partial";

/// Throws Error unless the path is free or an empty folder, which a folder can replace.
void require_free(const fs::path& final_path) {
  if (!path_exists(final_path)) return;
  if (!is_folder(final_path) || !list_folder(final_path).empty()) {
    throw Error("{} is there already and not an empty folder; choose another --output",
                final_path.string());
  }
}

/// Returns whether a folder is on another file system than its parent.
bool is_mount_point(const fs::path& folder) {
  struct stat inner {};
  struct stat outer {};
  return ::stat(folder.c_str(), &inner) == 0 && ::stat(folder.parent_path().c_str(), &outer) == 0 &&
         inner.st_dev != outer.st_dev;
}

/// Returns the path without links and dots. Throws Error when no folder can be renamed to it.
fs::path resolve(const fs::path& output) {
  if (output.empty()) throw Error("--output is empty; give the folder that is to be written");
  const fs::path named = output.has_filename() ? output : output.parent_path();
  std::error_code code;
  if (fs::is_symlink(named, code) && !path_exists(named)) {
    throw Error(
        "{} is a link to {}, which is not there; remove the link or choose another --output",
        named.string(), fs::read_symlink(named, code).string());
  }
  fs::path final_path = canonical_path(named);
  require_free(final_path);
  // The finished folder replaces an empty one. It cannot replace the current folder or a mount
  // point.
  const char* role = !path_exists(final_path)                                   ? nullptr
                     : fs::equivalent(final_path, fs::current_path(code), code) ? "current folder"
                     : is_mount_point(final_path) ? "place where a file system is mounted"
                                                  : nullptr;
  if (role != nullptr) {
    throw Error(
        "{} is the {}, which an export cannot replace; choose a new folder in it: --output {}",
        final_path.string(), role, (output / "NAME").string());
  }
  return final_path;
}

/// Locks the folder, and creates it if it is missing. Tries again if another process renamed or
/// removed the folder between opening and locking it.
void lock_folder(const fs::path& path, const fs::path& final_path,
                 std::optional<CheckpointLock>& lock) {
  std::error_code code;
  if (fs::is_symlink(path, code)) {
    throw Error("{} is a link; remove it, the export is written there", path.string());
  }
  do {
    ensure_directory(path);
    lock.emplace(path, fmt::format("another export to {} is going on; wait for it or choose "
                                   "another --output",
                                   final_path.string()));
  } while (!lock->is_at(path));
}

void remove_content(const fs::path& folder) {
  for (const fs::path& path : list_folder(folder)) {
    std::error_code code;
    fs::remove_all(path, code);
    if (code) throw Error("cannot remove {}: {}", path.string(), code.message());
  }
}

}  // namespace

ModelFolder::ModelFolder(const fs::path& output)
    : final_path_(resolve(output)),
      partial_path_(final_path_.string() + std::string(kPartialSuffix)) {
  parents_.emplace(final_path_.parent_path());
  lock_folder(partial_path_, final_path_, lock_);
  partial_.emplace(partial_path_);
  require_free(final_path_);  // another export may have ended before this one got the lock
  remove_content(partial_path_);
}

void ModelFolder::publish(const std::map<std::string, int64_t>& files) {
  for (const auto& [name, bytes] : files) {
    std::error_code code;
    const auto found = fs::file_size(partial_path_ / name, code);
    if (!code && found == static_cast<uintmax_t>(bytes)) continue;
    throw Error("{} was changed while it was written ({}); export again",
                (partial_path_ / name).string(),
                code ? code.message() : fmt::format("{} bytes, expected {}", found, bytes));
  }
  require_free(final_path_);
  rename_folder(partial_path_, final_path_);
  partial_->keep();
  parents_->keep();
  sync_directory(final_path_.parent_path());
}

}  // namespace tessera::hugging_face
