#include "base/read_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/links.h"

namespace tessera {

// O_NONBLOCK, because opening a pipe would otherwise wait for a writer.
ReadFile::ReadFile(const fs::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  const auto fail = [&](std::string_view verb, std::string_view why) {
    throw Error("cannot {} {}: {}{}", verb, path.string(), why, dangling_link_text(path));
  };
  if (!descriptor_.is_open()) fail("open", std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) fail("read", std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail("read", "it is a folder");
  if (!S_ISREG(status.st_mode)) fail("read", "it is not a regular file");
  size_ = status.st_size;
}

void ReadFile::read_at(int64_t offset, std::span<std::byte> to) const {
  const int64_t first = offset;
  const size_t wanted = to.size();
  TESSERA_CHECK(offset >= 0, "a read of {} at {}", path_.string(), offset);
  const auto fail = [&](std::string_view why) {
    throw Error("cannot read {} bytes at byte {} of {}: {}", wanted, first, path_.string(), why);
  };
  while (!to.empty()) {
    const ssize_t bytes = ::pread(descriptor_.get(), to.data(), to.size(), offset);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) fail(std::strerror(errno));
    if (bytes == 0) {
      fail(fmt::format("it {} at byte {}",
                       offset < size_ ? "was cut short while it was read, and ends" : "ends",
                       offset));
    }
    to = to.subspan(static_cast<size_t>(bytes));
    offset += bytes;
  }
}

void ReadFile::will_need(int64_t offset, int64_t length) const {
  ::posix_fadvise(descriptor_.get(), offset, length, POSIX_FADV_WILLNEED);
}

void ReadFile::release(int64_t offset, int64_t length) const {
  ::posix_fadvise(descriptor_.get(), offset, length, POSIX_FADV_DONTNEED);
}

}  // namespace tessera
