#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/checkpoint_manifest.h"

namespace tessera {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::array<std::pair<FolderState, std::string_view>, 4> kSuffixes{{
    {FolderState::complete, ""},
    {FolderState::partial, ".partial"},
    {FolderState::replaced, ".replaced"},
    {FolderState::deleted, ".deleted"},
}};

struct Folder {
  int64_t step;
  FolderState state;
  fs::path path;
};

/// The step and state that a name says; nothing for a name that is not ours.
std::optional<std::pair<int64_t, FolderState>> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits < 8 || digits > 18) return std::nullopt;
  int64_t step = 0;
  for (const char digit : name.substr(0, digits)) step = 10 * step + (digit - '0');
  for (const auto& [state, suffix] : kSuffixes) {
    if (name.substr(digits) == suffix) return std::pair(step, state);
  }
  return std::nullopt;
}

std::vector<Folder> find_folders(const fs::path& directory) {
  std::vector<Folder> found;
  std::error_code code;
  if (!fs::exists(directory, code) && !code) return found;
  auto entry = fs::directory_iterator(directory, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    if (const auto name = parse_name(entry->path().filename().string())) {
      found.push_back({name->first, name->second, entry->path()});
    }
  }
  if (code) throw Error("cannot list {}: {}", directory.string(), code.message());
  std::sort(found.begin(), found.end(), [](const Folder& a, const Folder& b) {
    return std::pair(a.step, a.state) < std::pair(b.step, b.state);
  });
  return found;
}

/// What keeps a folder from being a complete checkpoint; empty when nothing does.
std::string find_problem(const Folder& folder) {
  try {
    const CheckpointManifest manifest = read_checkpoint_manifest(folder.path);
    if (manifest.state.step != folder.step) {
      return fmt::format("{} holds the checkpoint of step {}; give the folder its own name back",
                         folder.path.string(), manifest.state.step);
    }
    check_checkpoint_files(folder.path, manifest);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void remove_folder(const fs::path& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) throw Error("cannot remove {}: {}", path.string(), code.message());
}

}  // namespace

fs::path checkpoint_path(const fs::path& directory, int64_t step, FolderState state) {
  for (const auto& [known, suffix] : kSuffixes) {
    if (known == state) return directory / fmt::format("{}{:08}{}", kPrefix, step, suffix);
  }
  throw InternalError("unknown FolderState");
}

CheckpointListing list_checkpoints(const fs::path& directory) {
  CheckpointListing listing;
  for (const Folder& folder : find_folders(directory)) {
    const bool named = folder.state == FolderState::complete;
    if (!named && folder.state != FolderState::replaced) continue;
    if (!named && !listing.complete.empty() && listing.complete.back().step == folder.step) {
      continue;  // the save that replaces it has been completed
    }
    std::string problem = find_problem(folder);
    if (problem.empty()) {
      listing.complete.push_back({folder.step, folder.path});
    } else {
      listing.broken.push_back({folder.step, folder.path, std::move(problem)});
    }
  }
  return listing;
}

LatestCheckpoint latest_checkpoint(const fs::path& directory) {
  CheckpointListing listing = list_checkpoints(directory);
  LatestCheckpoint latest;
  int64_t step = -1;
  if (!listing.complete.empty()) {
    latest.path = listing.complete.back().path;
    step = listing.complete.back().step;
  }
  for (BrokenCheckpoint& broken : listing.broken) {
    if (broken.step >= step) latest.newer_broken.push_back(std::move(broken));
  }
  return latest;
}

fs::path find_checkpoint(const fs::path& path) {
  std::error_code code;
  if (fs::exists(path / kCheckpointManifestName, code)) return path;
  if (!fs::is_directory(path, code)) {
    throw Error(
        "{} is not a folder; give a checkpoint, such as step-00000100, or the folder that "
        "holds a run's checkpoints",
        path.string());
  }
  const bool is_run = fs::is_directory(path / kCheckpointsName, code);
  const fs::path directory = is_run ? path / kCheckpointsName : path;
  const LatestCheckpoint latest = latest_checkpoint(directory);
  if (latest.path) return *latest.path;
  std::string problems;
  for (const BrokenCheckpoint& broken : latest.newer_broken) problems += "\n  " + broken.problem;
  throw Error("{} is neither a checkpoint nor a folder that holds a complete one{}",
              directory.string(), problems);
}

CheckpointLock::CheckpointLock(const fs::path& directory)
    : CheckpointLock(directory,
                     fmt::format("another process is changing the checkpoints in {}; stop it or "
                                 "choose another folder for this run",
                                 directory.string())) {}

CheckpointLock::CheckpointLock(const fs::path& directory, const std::string& busy)
    : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw Error("cannot open {}: {}", directory.string(), std::strerror(errno));
  // A file system without locks is no reason to refuse: the lock only guards against a mistake.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    throw Error(busy);
  }
}

CheckpointLock::~CheckpointLock() { ::close(descriptor_); }

bool CheckpointLock::is_at(const fs::path& path) const {
  struct stat locked {};
  struct stat found {};
  return ::fstat(descriptor_, &locked) == 0 && ::lstat(path.c_str(), &found) == 0 &&
         locked.st_dev == found.st_dev && locked.st_ino == found.st_ino;
}

void remove_stale_checkpoints(const fs::path& directory) {
  const CheckpointListing listing = list_checkpoints(directory);
  const auto is_needed = [&](const fs::path& path) {
    return std::any_of(listing.complete.begin(), listing.complete.end(),
                       [&](const FoundCheckpoint& found) { return found.path == path; });
  };
  for (const Folder& folder : find_folders(directory)) {
    if (folder.state == FolderState::complete) continue;
    if (folder.state != FolderState::replaced) {
      remove_folder(folder.path);
    } else if (!is_needed(folder.path)) {
      discard_checkpoint(folder.path, folder.step);
    } else {
      const fs::path name = checkpoint_path(directory, folder.step);
      std::error_code code;
      if (!fs::exists(name, code)) rename_folder(folder.path, name);
    }
  }
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) throw Error("cannot rename {} to {}: {}", from.string(), to.string(), code.message());
}

void discard_checkpoint(const fs::path& path, int64_t step) {
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path deleted = checkpoint_path(parent, step, FolderState::deleted);
  remove_folder(deleted);
  rename_folder(path, deleted);
  sync_directory(parent);
  remove_folder(deleted);
}

}  // namespace tessera
