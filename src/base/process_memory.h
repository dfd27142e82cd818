#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/file.h"

namespace tessera {

/// Returns the bytes in a line of one of the system's files, such as "VmHWM:  1234 kB" or
/// "MemTotal:  1234 kB"; null if no line of the file begins with `key`.
std::optional<int64_t> kibibytes_line(const fs::path& path, std::string_view key);

/// Returns the largest resident set that this process has had, in bytes, including its libraries.
/// Reads it from VmHWM in /proc/self/status, which is exact to a few hundred pages. Throws Error if
/// the system does not say.
int64_t peak_resident_bytes();

/// Returns the bytes of address space that this process may still take: the user's limit (ulimit
/// -v) minus what is in use, or the largest int64_t if there is no limit.
int64_t available_addresses();

}  // namespace tessera
