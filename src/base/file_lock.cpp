#include "base/file_lock.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>

#include "base/error.h"

namespace tessera {

FileLock::FileLock(const fs::path& path, int flags)
    : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
  if (!descriptor_.is_open()) {
    throw Error("cannot open {}: {}", path.string(), std::strerror(errno));
  }
  int result = 0;
  do {
    result = ::flock(descriptor_.get(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0) state_ = errno == EWOULDBLOCK ? State::busy : State::unsupported;
}

FileLock FileLock::on_folder(const fs::path& path) { return {path, O_RDONLY | O_DIRECTORY}; }

// The file is opened for writing, because NFS requires that for an exclusive lock.
FileLock FileLock::on_file(const fs::path& path) { return {path, O_RDWR | O_CREAT}; }

std::optional<fs::path> FileLock::present_path() const {
  std::error_code code;
  fs::path found = fs::read_symlink(fmt::format("/proc/self/fd/{}", descriptor_.get()), code);
  if (code || !is_at(found)) return std::nullopt;
  return found;
}

}  // namespace tessera
