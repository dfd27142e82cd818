// The names of checkpoint folders, and the operations on them. find_folders() lists the folders
// whose names are a checkpoint's; list_checkpoints() divides them into complete and broken ones.
// Readers hold no lock, so a checkpoint may disappear while it is read (see was_removed()).

#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <utility>

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

/// Returns the step and the state that a name gives, or nothing if the name is not a checkpoint's.
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

/// Returns the step and the state of a user's path, which may end with a slash or be ".".
std::optional<std::pair<int64_t, FolderState>> parse_path(const fs::path& path) {
  fs::path plain = path.lexically_normal();
  if (!plain.has_filename()) plain = plain.parent_path();
  if (plain.filename() == "." || plain.filename() == "..") plain = canonical_path(plain);
  return parse_name(plain.filename().string());
}

std::vector<Folder> find_folders(const fs::path& directory) {
  std::vector<Folder> found;
  if (!path_exists(directory)) return found;
  for (const fs::path& path : list_folder(directory)) {
    if (const auto name = parse_name(path.filename().string())) {
      found.push_back({name->first, name->second, path});
    }
  }
  std::sort(found.begin(), found.end(), [](const Folder& a, const Folder& b) {
    return std::pair(a.step, a.state) < std::pair(b.step, b.state);
  });
  return found;
}

/// Returns the reason that a folder is not a complete checkpoint, or an empty text if it is one.
std::string find_problem(const Folder& folder) {
  try {
    const CheckpointManifest manifest = read_checkpoint_manifest(folder.path);
    std::string problem = name_problem(folder.path, manifest.state.step);
    if (!problem.empty()) return problem;
    check_checkpoint_files(folder.path, manifest);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Returns the checkpoints; none if another process has renamed one of them meanwhile.
std::optional<CheckpointListing> try_list(const fs::path& directory) {
  CheckpointListing listing;
  for (const Folder& folder : find_folders(directory)) {
    const bool finished = folder.state == FolderState::complete;
    if (!finished && folder.state != FolderState::replaced) continue;
    if (!finished && !listing.complete.empty() && listing.complete.back().step == folder.step) {
      continue;  // the newer save is complete; it comes first, by the order of FolderState
    }
    const FolderHandle handle(folder.path);
    std::string problem = find_problem(folder);
    if (problem.empty()) {
      listing.complete.push_back({folder.step, folder.path});
    } else if (was_removed(folder.path, handle)) {
      return std::nullopt;
    } else {
      listing.broken.push_back({folder.step, folder.path, std::move(problem)});
    }
  }
  return listing;
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

std::optional<int64_t> step_of_name(const fs::path& folder) {
  const auto name = parse_path(folder);
  return name ? std::optional(name->first) : std::nullopt;
}

std::string name_problem(const fs::path& folder, int64_t step) {
  const auto name = parse_path(folder);
  if (!name) return "";
  if (name->second == FolderState::partial || name->second == FolderState::deleted) {
    return fmt::format(
        "{} is being {}, or was left so by a process that was killed: it does not count as a "
        "checkpoint",
        folder.string(), name->second == FolderState::partial ? "written" : "removed");
  }
  if (name->first == step) return "";
  return fmt::format("{} holds the checkpoint of step {}; give the folder its own name back",
                     folder.string(), step);
}

std::vector<fs::path> unfinished_checkpoints(const fs::path& directory) {
  std::vector<fs::path> unfinished;
  for (const Folder& folder : find_folders(directory)) {
    if (folder.state == FolderState::partial || folder.state == FolderState::deleted) {
      unfinished.push_back(folder.path);
    }
  }
  return unfinished;
}

CheckpointListing list_checkpoints(const fs::path& directory) {
  for (;;) {  // ends, because listing is much faster than the changes that cause a repetition
    if (auto listing = try_list(directory)) return std::move(*listing);
  }
}

bool was_removed(const fs::path& checkpoint, const FolderHandle& handle) {
  if (handle.is_at(checkpoint)) return false;
  std::error_code code;
  // Removing or replacing a checkpoint leaves no dangling link and no file at its path.
  const fs::file_type found = fs::symlink_status(checkpoint, code).type();
  return found == fs::file_type::not_found ||
         (found == fs::file_type::directory && handle.is_open());
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

CheckpointLock::CheckpointLock(const fs::path& directory)
    : CheckpointLock(directory,
                     fmt::format("another process is changing the checkpoints in {}; stop it or "
                                 "choose another folder for this run",
                                 directory.string())) {}

CheckpointLock::CheckpointLock(const fs::path& directory, const std::string& busy_message)
    : lock_(FileLock::on_folder(directory)) {
  // A file system without locks is accepted: the lock only guards against a mistake.
  if (lock_.state() == FileLock::State::busy) throw Error(busy_message);
}

void remove_stale_checkpoints(const fs::path& directory) {
  const CheckpointListing listing = list_checkpoints(directory);
  const auto is_complete = [&](const fs::path& path) {
    return std::ranges::count(listing.complete, path, &FoundCheckpoint::path) > 0;
  };
  for (const Folder& folder : find_folders(directory)) {
    if (folder.state == FolderState::complete) continue;
    const fs::path complete_path = checkpoint_path(directory, folder.step);
    if (folder.state == FolderState::deleted) {
      std::error_code ignored;  // harmless, and reported by the code that removes checkpoints
      fs::remove_all(folder.path, ignored);
    } else if (folder.state == FolderState::partial) {
      remove_folder(folder.path);
    } else if (!path_exists(complete_path)) {
      rename_folder(folder.path, complete_path);
    } else if (is_complete(complete_path)) {
      discard_checkpoint(folder.path, folder.step);
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

std::vector<fs::path> prune_checkpoints(const fs::path& directory, const KeepRule& rule) {
  TESSERA_CHECK(rule.newest >= 0 && rule.multiples_of >= 0, "a rule that keeps {} and 1 in {}",
                rule.newest, rule.multiples_of);
  std::vector<fs::path> removed;
  if (!path_exists(directory)) return removed;
  const CheckpointLock lock(directory);
  remove_stale_checkpoints(directory);
  if (rule.newest == 0) return removed;
  const std::vector<FoundCheckpoint> complete = list_checkpoints(directory).complete;
  const auto count = static_cast<int64_t>(complete.size());
  std::string problem;
  for (int64_t i = 0; i + rule.newest < count; ++i) {
    const FoundCheckpoint& checkpoint = complete[static_cast<size_t>(i)];
    if (rule.multiples_of > 0 && checkpoint.step % rule.multiples_of == 0) continue;
    try {
      discard_checkpoint(checkpoint.path, checkpoint.step);
      removed.push_back(checkpoint.path);
    } catch (const Error& error) {
      if (problem.empty()) problem = error.what();
    }
  }
  if (!problem.empty()) throw Error(problem);
  return removed;
}

}  // namespace tessera
