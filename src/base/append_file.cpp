#include "base/append_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/links.h"

namespace tessera {

AppendFile::AppendFile(fs::path path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (!descriptor_.is_open()) {
    throw Error("cannot write {}: {}", path_.string(), std::strerror(errno));
  }
  sync_directory(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

void AppendFile::cut_incomplete() {
  if (!incomplete_at_) return;
  if (::ftruncate(descriptor_.get(), *incomplete_at_) != 0) {
    throw Error("cannot write {}: its last entry is incomplete and cannot be cut off: {}",
                path_.string(), write_failure());
  }
  incomplete_at_.reset();
}

void AppendFile::append(std::string_view bytes) {
  if (!leads_to(path_, descriptor_.get())) {
    throw Error(
        "cannot write {}: it was moved, removed or replaced since it was opened; leave it alone "
        "while it is written",
        path_.string());
  }
  cut_incomplete();
  const off_t old_size = ::lseek(descriptor_.get(), 0, SEEK_END);
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count =
        ::write(descriptor_.get(), bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;  // a signal came before a byte was written
    if (count <= 0) {
      const std::string reason = write_failure();
      if (::ftruncate(descriptor_.get(), old_size) != 0) incomplete_at_ = old_size;
      throw Error("cannot write {}: {}{}", path_.string(), reason,
                  incomplete_at_ ? " (the file's last entry is incomplete)" : "");
    }
    written += static_cast<size_t>(count);
  }
}

void AppendFile::sync() {
  if (::fsync(descriptor_.get()) != 0) {
    throw Error("cannot flush {}: {}", path_.string(), std::strerror(errno));
  }
}

}  // namespace tessera
