#include "train/run_lock.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <fmt/chrono.h>
#include <unistd.h>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

std::string own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text;
}

std::string describe_this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {} since {:%Y-%m-%d %H:%M:%S} UTC: {}", ::getpid(), host.data(),
                     fmt::gmtime(std::time(nullptr)), own_command());
}

/// Returns what the holder wrote about itself. The holder writes right after it takes the lock, so
/// this function waits for the text, at most 100 ms.
std::string describe_holder(const fs::path& path) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::ifstream file(path, std::ios::binary);
    std::string line;
    if (std::getline(file, line) && !line.empty()) return printable(line);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return fmt::format("a process that {} does not name", path.string());
}

/// Writes the text about the holder over that of a killed process. A failure is ignored, for
/// example on a full disk: the text is for people only.
void write_holder(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << '\n';
}

/// Returns the text of a lock's file; none if there is no file.
std::optional<std::string> text_of_lock(const fs::path& path) {
  if (!path_exists(path)) return std::nullopt;
  return read_file(path);
}

/// The time in which a new file must become visible: network file systems may show it late.
constexpr std::chrono::seconds kVisibilityTimeout{5};

/// Waits until the file has this text. Returns false if it has not within kVisibilityTimeout.
bool wait_for_text(const fs::path& path, const std::optional<std::string>& text) {
  constexpr std::chrono::milliseconds kPollInterval{50};
  for (auto waited = kPollInterval; text_of_lock(path) != text; waited += kPollInterval) {
    if (waited > kVisibilityTimeout) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

}  // namespace

RunLock::RunLock(const fs::path& directory, const Logger& logger)
    : directory_(directory), path_(directory / "run.lock"), created_(directory) {
  // A holder that ends removes the file. A lock on a removed file does not count.
  do {
    lock_ = FileLock::on_file(path_);
  } while (lock_->state() == FileLock::State::held && !lock_->is_at(path_));
  if (lock_->state() == FileLock::State::busy) {
    throw Error(
        "{} is held by {}; wait for its end, stop it (kill -TERM saves first), or choose another "
        "run.directory",
        directory.string(), describe_holder(path_));
  }
  if (lock_->state() == FileLock::State::unsupported) {
    logger.warn(
        "the file system of {} has no locks: nothing keeps a second process from training there",
        directory.string());
  }
  write_holder(path_, describe_this_process());
}

RunLock::~RunLock() {
  if (!lock_->is_at(path_)) return;  // the file is gone or belongs to another run
  std::error_code ignored;           // a file that is left does no harm
  fs::remove(path_, ignored);
}

void RunLock::require_held() const {
  if (lock_->is_at(path_)) return;
  const std::optional<fs::path> file = lock_->present_path();
  if (file && file->parent_path() != canonical_path(directory_)) {
    const std::string moved = file->parent_path().string();
    throw Error(
        "the run's folder {0} was moved to {1} while the run wrote into it{2}; the run ends, and "
        "writes nothing more: what it saved is in {1}. Go on there with --resume and run.directory "
        "= \"{1}\"",
        directory_.string(), moved,
        path_exists(path_) ? ", and the path is held by " + describe_holder(path_) : "");
  }
  throw Error(
      "{} was removed or replaced while the run held it, so another run may write into {}{}; the "
      "run ends, and writes nothing more. Let the file and the folder be while a run is going on",
      path_.string(), directory_.string(),
      path_exists(path_) ? ", which is held by " + describe_holder(path_) : "");
}

void require_shared_folder(const fs::path& directory, const RankControl& control) {
  const fs::path path = directory / "run.lock";
  std::optional<std::string> text;
  control.on_first([&] { text = text_of_lock(path); });
  text = control.any_text(text);
  control.together([&] {
    if (control.is_first() || wait_for_text(path, text)) return;
    throw Error(
        "{} is another folder here than for rank 0: its {} is not to be seen; run.directory must "
        "be in a file system that all ranks share",
        directory.string(), path.filename().string());
  });
}

}  // namespace tessera
