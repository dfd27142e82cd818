#pragma once

#include <cstdint>

namespace tessera {

/// The largest resident set that this process has had, in bytes, its libraries included: VmHWM of
/// /proc/self/status, exact to some hundred pages. Throws Error where the system does not tell.
int64_t peak_resident_bytes();

}  // namespace tessera
