#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include <sys/statvfs.h>
#include <unistd.h>

namespace tessera {

/// Returns where tests make their folders: the system's temporary folder if TMPDIR, TMP or TEMP
/// names one; else a folder in memory, if there is one with a gigabyte to spare in which programs
/// can be run; else the system's temporary folder. A disk that others use as well may take seconds
/// for what a test saves, and the ranks of a test wait for that.
inline std::filesystem::path temporary_root() {
  constexpr uint64_t kEnough = uint64_t{1} << 30;
  constexpr std::array kNames{"TMPDIR", "TMP", "TEMP"};
  const char* const memory = "/dev/shm";
  const bool is_named =
      std::ranges::any_of(kNames, [](const char* name) { return std::getenv(name) != nullptr; });
  struct statvfs space = {};
  if (!is_named && ::statvfs(memory, &space) == 0 && (space.f_flag & ST_NOEXEC) == 0 &&
      uint64_t{space.f_bavail} * space.f_frsize >= kEnough && ::access(memory, W_OK | X_OK) == 0) {
    return memory;
  }
  return std::filesystem::temp_directory_path();
}

}  // namespace tessera
