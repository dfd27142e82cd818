#pragma once

#include <cstdint>

namespace tessera {

/// The largest resident set that this process has had, in bytes, its libraries included: VmHWM of
/// /proc/self/status, exact to some hundred pages. Throws Error where the system does not tell.
int64_t peak_resident_bytes();

/// Bytes of addresses that this process may still take: what the user's limit (ulimit -v) leaves
/// beside those in use, or the largest number where there is none.
int64_t available_addresses();

}  // namespace tessera
