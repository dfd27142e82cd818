#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace tessera {

/// Returns where tests make their folders: where TMPDIR says; else in memory, if the system has
/// such a place with a gigabyte to spare. A disk that others use as well may take seconds for what
/// a test saves, and the ranks of a test wait for that.
inline std::filesystem::path temporary_root() {
  constexpr uintmax_t kEnough = uintmax_t{1} << 30;
  const std::filesystem::path memory = "/dev/shm";
  if (std::getenv("TMPDIR") == nullptr) {
    std::error_code is_missing;
    const std::filesystem::space_info space = std::filesystem::space(memory, is_missing);
    if (!is_missing && space.available >= kEnough) return memory;
  }
  return std::filesystem::temp_directory_path();
}

}  // namespace tessera
