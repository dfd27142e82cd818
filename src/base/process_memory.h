#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/file.h"

namespace tessera {

/// Returns the bytes that a line of one of the system's files gives, such as "VmHWM:  1234 kB" or
/// "MemTotal:  1234 kB", or null if the file has no line that begins with `key`.
std::optional<int64_t> kibibytes_line(const fs::path& path, std::string_view key);

/// The largest resident set that this process has had, in bytes, including its libraries. Read from
/// VmHWM in /proc/self/status, which is exact to a few hundred pages. Throws Error if the system
/// does not tell.
int64_t peak_resident_bytes();

/// The bytes of address space that this process may still take: the user's limit (ulimit -v) minus
/// what is in use, or the largest int64_t if there is no limit.
int64_t available_addresses();

}  // namespace tessera
