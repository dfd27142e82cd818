#include "base/file_lock.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/links.h"

namespace tessera {

FileLock::FileLock(const fs::path& path, int flags)
    : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw Error("cannot open {}: {}", path.string(), std::strerror(errno));
  int result = 0;
  do {
    result = ::flock(descriptor_, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0) state_ = errno == EWOULDBLOCK ? State::busy : State::unsupported;
}

FileLock FileLock::on_folder(const fs::path& path) { return {path, O_RDONLY | O_DIRECTORY}; }

// The file is opened for writing, because NFS requires that for an exclusive lock.
FileLock FileLock::on_file(const fs::path& path) { return {path, O_RDWR | O_CREAT}; }

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileLock::FileLock(FileLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), state_(other.state_) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(state_, other.state_);
  return *this;
}

bool FileLock::is_at(const fs::path& path) const { return leads_to(path, descriptor_); }

std::optional<fs::path> FileLock::present_path() const {
  std::error_code code;
  fs::path found = fs::read_symlink(fmt::format("/proc/self/fd/{}", descriptor_), code);
  if (code || !is_at(found)) return std::nullopt;
  return found;
}

}  // namespace tessera
