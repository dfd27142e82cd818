#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

namespace fs = std::filesystem;

/// Reads a whole regular file. Throws Error with the path and the system's reason.
std::string read_file(const fs::path& path);

/// Returns whether `name` can name an entry of a folder: it is not empty, ".", or "..", and has no
/// slash and no zero byte. A name from a hostile file then cannot lead out of the folder.
bool is_plain_name(std::string_view name);

/// Returns the system's reason (errno) for a failed write, with advice if the disk is full or a
/// limit was reached.
std::string write_failure();

/// path_exists(), is_file() and is_folder() say what is at a path. They follow links, and return
/// false if nothing is there. If the system cannot say (a folder without permission, a name too
/// long, a circle of links), they throw Error with the path and the reason.
bool path_exists(const fs::path& path);
bool is_file(const fs::path& path);  ///< whether a regular file is there
bool is_folder(const fs::path& path);

/// Returns the paths of a folder's entries, sorted. Throws Error with the path and the system's
/// reason.
std::vector<fs::path> list_folder(const fs::path& folder);

/// Returns the absolute path, with links and dots resolved as far as it exists. Throws Error with
/// the path and the system's reason.
fs::path canonical_path(const fs::path& path);

/// Creates a folder and its parents. Throws Error with the path and the system's reason.
void ensure_directory(const fs::path& path);

/// Makes the entries of a folder durable: what was created or renamed in it survives a power cut.
void sync_directory(const fs::path& path);

/// A file that appears whole or not at all: bytes go to `path` + ".partial" in the same folder, and
/// commit() flushes them to the disk, renames the file to `path` and flushes the folder. The
/// destructor removes the partial file unless commit() came to the rename. Every failure (full
/// disk, unwritable folder) throws Error with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(fs::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Overwrites bytes that are already written, for header fields that are known late. `offset`
  /// counts from the start of the file.
  void overwrite(int64_t offset, std::span<const std::byte> bytes);
  int64_t size() const { return size_ + static_cast<int64_t>(buffer_.size()); }
  void commit();

 private:
  /// Writes the buffer to the partial file, but not through to the disk.
  void flush();

  fs::path path_;
  fs::path partial_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

/// Throws Error unless a file can be written at that path. Call it before long work whose result
/// goes there.
void require_writable(const fs::path& path);

/// Writes a whole file atomically (see AtomicFile).
void write_file(const fs::path& path, std::string_view text);

/// Returns the regular files that `pattern` names, sorted: a file, a folder (everything below it),
/// or a glob such as "corpus/*.jsonl". Throws Error when nothing matches.
std::vector<fs::path> find_inputs(const std::string& pattern);

}  // namespace tessera
