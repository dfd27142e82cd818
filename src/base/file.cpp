#include "base/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/links.h"
#include "base/read_file.h"

// Functions of std::filesystem are called with an error code, so that a failure becomes an Error
// with the path. An AtomicFile is a buffer, the partial file, and a durable rename in commit().

namespace tessera {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;  // of an AtomicFile

std::string system_reason() { return std::strerror(errno); }

/// Writes bytes at an offset of a file; without one, at its end.
void write_all(int descriptor, std::span<const std::byte> bytes, const fs::path& path,
               std::optional<int64_t> offset = {}) {
  while (!bytes.empty()) {
    const ssize_t written = offset ? ::pwrite(descriptor, bytes.data(), bytes.size(), *offset)
                                   : ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw Error("cannot write {}: {}", path.string(), write_failure());
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    if (offset) *offset += written;
  }
}

/// Returns what is at a path, following links. Throws Error if the system cannot say.
fs::file_status status_of(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::none || status.type() == fs::file_type::unknown) {
    throw Error("cannot look at {}: {}", path.string(), code.message());
  }
  return status;
}

/// Adds the regular files below a folder to `found`, following links.
void add_files_below(const fs::path& folder, std::vector<fs::path>& found) {
  std::error_code code;
  auto entry = fs::recursive_directory_iterator(
      folder, fs::directory_options::follow_directory_symlink, code);
  fs::path path = folder;  // for the error
  for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    path = entry->path();
    if (is_file(path)) found.push_back(path);
  }
  if (code) throw Error("cannot list {}: {}", path.string(), code.message());
}

/// Throws Error if something other than a regular file is at the path: the rename in commit() would
/// replace a device or a pipe.
void require_replaceable(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  throw Error("cannot write {}: it is {}; name a file", path.string(),
              S_ISDIR(status.st_mode) ? "a folder" : "no regular file");
}

}  // namespace

std::string read_file(const fs::path& path) {
  const ReadFile file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string write_failure() {
  switch (errno) {
    case ENOSPC:
    case EDQUOT:
      return system_reason() + "; free some space or choose another folder";
    case EFBIG:
      return system_reason() + "; raise the limit (ulimit -f) or choose another file system";
    default:
      return system_reason();
  }
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

bool path_exists(const fs::path& path) { return fs::exists(status_of(path)); }

bool is_file(const fs::path& path) { return fs::is_regular_file(status_of(path)); }

bool is_folder(const fs::path& path) { return fs::is_directory(status_of(path)); }

std::vector<fs::path> list_folder(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code code;
  auto entry = fs::directory_iterator(folder, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    found.push_back(entry->path());
  }
  if (code) throw Error("cannot list {}: {}", folder.string(), code.message());
  std::sort(found.begin(), found.end());
  return found;
}

fs::path canonical_path(const fs::path& path) {
  std::error_code code;
  // weakly_canonical() leaves a relative path relative if not even its first part exists.
  const fs::path absolute = fs::absolute(path, code);
  fs::path canonical = code ? fs::path() : fs::weakly_canonical(absolute, code);
  if (code) throw Error("cannot look at {}: {}", path.string(), code.message());
  return canonical;
}

void ensure_directory(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (!code) return;
  throw Error("cannot create the folder {}: {}{}", path.string(), code.message(),
              dangling_link_text(path));
}

void sync_directory(const fs::path& path) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open() || ::fsync(directory.get()) != 0) {
    throw Error("cannot flush the folder {}: {}", path.string(), system_reason());
  }
}

AtomicFile::AtomicFile(fs::path path)
    : path_(std::move(path)), partial_(path_.string() + ".partial") {
  require_replaceable(path_);
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    const std::string why = system_reason();  // before dangling_link_text() changes errno
    throw Error("cannot create {}: {}{}", partial_.string(), why, dangling_link_text(path_));
  }
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void AtomicFile::flush() {
  write_all(descriptor_, buffer_, partial_);
  size_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    write_all(descriptor_, bytes, partial_);
    size_ += static_cast<int64_t>(bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

void AtomicFile::overwrite(int64_t offset, std::span<const std::byte> bytes) {
  flush();
  TESSERA_CHECK(offset >= 0 && offset + static_cast<int64_t>(bytes.size()) <= size_,
                "overwrite past the end of {}", partial_.string());
  write_all(descriptor_, bytes, partial_, offset);
}

void AtomicFile::commit() {
  flush();
  if (::fsync(descriptor_) != 0)
    throw Error("cannot flush {}: {}", partial_.string(), system_reason());
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    throw Error("cannot close {}: {}", partial_.string(), system_reason());
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    throw Error("cannot rename {} to {}: {}", partial_.string(), path_.string(), system_reason());
  }
  sync_directory(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

void require_writable(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!is_folder(folder)) {
    throw Error("cannot write {}: there is no folder {}{}; make it first", path.string(),
                folder.string(), dangling_link_text(folder));
  }
  const AtomicFile attempt{path};  // its destructor removes the file
}

void write_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::vector<fs::path> find_inputs(const std::string& pattern) {
  std::vector<fs::path> found;
  std::error_code ignored;  // a glob may be longer than the system allows a name to be
  if (fs::is_regular_file(pattern, ignored)) {
    found.emplace_back(pattern);
  } else if (fs::is_directory(pattern, ignored)) {
    add_files_below(pattern, found);
  } else {
    glob_t matches{};
    const std::unique_ptr<glob_t, decltype(&::globfree)> owner(&matches, &::globfree);
    if (::glob(pattern.c_str(), GLOB_TILDE | GLOB_BRACE, nullptr, &matches) == 0) {
      for (size_t i = 0; i < matches.gl_pathc; ++i) {
        const fs::path path(matches.gl_pathv[i]);
        if (is_folder(path)) {
          add_files_below(path, found);
        } else if (is_file(path)) {
          found.push_back(path);
        }
      }
    }
  }
  if (found.empty()) {
    // If the pattern is a path, status_of() may throw Error with a better reason.
    if (pattern.find_first_of("*?[{") == std::string::npos) status_of(pattern);
    throw Error("no input file matches '{}'{}; give a file, a folder or a glob", pattern,
                dangling_link_text(pattern));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace tessera
