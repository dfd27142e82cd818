#include "base/append_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

namespace tessera {

AppendFile::AppendFile(fs::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw Error("cannot write {}: {}", path_.string(), std::strerror(errno));
  try {
    sync_directory(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view bytes) {
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = ::write(descriptor_, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const std::string reason = write_failure();
      const bool restored = ::ftruncate(descriptor_, before) == 0;
      throw Error("cannot write {}: {}{}", path_.string(), reason,
                  restored ? "" : " (the file's last entry is incomplete)");
    }
    written += static_cast<size_t>(count);
  }
}

void AppendFile::sync() {
  if (::fsync(descriptor_) != 0) {
    throw Error("cannot flush {}: {}", path_.string(), std::strerror(errno));
  }
}

}  // namespace tessera
