#include "data/shards/output_folder.h"

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "data/shards/manifest.h"

// The files in the folder show its state. The plan is written before all other files of the work
// and removed after them, and the manifest is written last, so a killed run can be continued.

namespace tessera {
namespace {

constexpr std::string_view kPartial = ".partial";

/// Returns whether prepare writes a file of this name into the folder itself, or a partial one.
bool is_written_by_prepare(std::string_view name) {
  if (name.ends_with(kPartial)) name.remove_suffix(kPartial.size());
  for (const std::string_view written :
       {std::string_view("tokenizer.model"), std::string_view("tokenizer.json"),
        std::string_view("tokenizer_config.json"), kManifestName}) {
    if (name == written) return true;
  }
  return (name.ends_with(".npy") || name.ends_with(".xxh3")) &&
         (name.starts_with("train-") || name.starts_with("held_out-"));
}

/// Returns whether prepare writes a file of this name into work/, other than the plan.
bool is_work_file(std::string_view name) {
  return name.starts_with("item-") || name.starts_with("tokenizer.xxh3") ||
         name == "plan.json.partial";
}

void remove_path(const fs::path& path) {
  std::error_code code;
  fs::remove(path, code);
  if (code) throw Error("cannot remove {}: {}", path.string(), code.message());
}

/// Returns the paths in a folder that have a wanted name; none if the folder does not exist.
template <typename Predicate>
std::vector<fs::path> entries(const fs::path& folder, Predicate&& is_wanted) {
  if (!path_exists(folder)) return {};
  std::vector<fs::path> found = list_folder(folder);
  std::erase_if(found, [&](const fs::path& path) { return !is_wanted(path.filename().string()); });
  return found;
}

std::string as_list(const std::vector<std::string>& differences) {
  return "\n  " + join(differences, "\n  ");
}

}  // namespace

OutputFolder::OutputFolder(fs::path folder, bool overwrite) : folder_(std::move(folder)) {
  ensure_directory(folder_);
  // The lock is on the folder itself, so no lock file is left. Some file systems give no lock.
  lock_ = FileLock::on_folder(folder_);
  if (lock_->state() == FileLock::State::busy) {
    throw Error("another process is preparing data into {}; wait for it or choose another folder",
                folder_.string());
  }
  if (overwrite) remove_all();
}

void OutputFolder::require_held() const {
  if (lock_->is_at(folder_)) return;
  throw Error(
      "{} was moved, removed or replaced while data was prepared into it; let it be, and run "
      "prepare again",
      folder_.string());
}

bool OutputFolder::is_complete(const Recipe& recipe) const {
  if (!path_exists(folder_ / kManifestName)) return false;
  const auto differences = recipe_differences(read_manifest(folder_).recipe, recipe);
  if (!differences.empty()) {
    throw Error(
        "{} already holds data that was prepared otherwise:{}\nchoose another folder, or overwrite "
        "this one",
        folder_.string(), as_list(differences));
  }
  return true;
}

void OutputFolder::begin(const Recipe& recipe, const std::vector<TokenizerFile>& tokenizer_files) {
  if (path_exists(plan_path())) {
    const auto differences =
        recipe_differences(recipe_from_text(read_file(plan_path()), plan_path().string()), recipe);
    if (differences.empty()) return;
    throw Error(
        "{} holds unfinished work that was begun otherwise:{}\nrun with the same inputs and "
        "options to finish it, choose another folder, or overwrite this one",
        folder_.string(), as_list(differences));
  }
  const auto refuse = [&](const fs::path& found) {
    throw Error(
        "{} holds {}, but neither a manifest nor a plan says where it comes from; choose another "
        "folder, or overwrite this one",
        folder_.string(), found.lexically_relative(folder_).string());
  };
  for (const fs::path& found : entries(folder_, is_written_by_prepare)) {
    if (found.extension() == kPartial) continue;
    const auto same =
        std::ranges::find(tokenizer_files, found.filename().string(), &TokenizerFile::name);
    if (same != tokenizer_files.end() && read_file(found) == same->content) continue;
    refuse(found);
  }
  for (const fs::path& found : entries(work_folder(), is_work_file)) {
    if (found.extension() != kPartial) refuse(found);
  }
  ensure_directory(work_folder());
  sync_directory(folder_);
  write_file(plan_path(), recipe_to_text(recipe));
}

bool OutputFolder::holds_trained_tokenizer() const {
  const fs::path model = folder_ / "tokenizer.model";
  return path_exists(model) && path_exists(trained_hash_path()) &&
         hash_text(hash(read_file(model))) == read_file(trained_hash_path());
}

void OutputFolder::keep_trained_hash(const std::string& hash) {
  if (!path_exists(trained_hash_path())) {
    write_file(trained_hash_path(), hash);
  } else if (const std::string kept = read_file(trained_hash_path()); kept != hash) {
    throw Error(
        "the tokenizer trained now has the hash {}, the one trained before had {} ({}): one of "
        "them is damaged, or another version trained it; overwrite the folder",
        hash, printable(kept), trained_hash_path().string());
  }
}

fs::path OutputFolder::item_path(int64_t index) const {
  return work_folder() / fmt::format("item-{:08}", index);
}

void OutputFolder::remove_work() {
  // Remove only our own files, and the plan last: it must exist as long as any of the work does.
  for (const fs::path& path : entries(work_folder(), is_work_file)) remove_path(path);
  remove_path(plan_path());
  std::error_code not_empty;  // set if the folder holds other files; it then stays
  fs::remove(work_folder(), not_empty);
}

void OutputFolder::remove_all() {
  // Remove the manifest first: without it the folder does not count as complete.
  remove_path(folder_ / kManifestName);
  for (const fs::path& path : entries(folder_, is_written_by_prepare)) remove_path(path);
  remove_work();
}

}  // namespace tessera
