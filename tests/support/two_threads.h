#pragma once

#include <algorithm>

#include "base/threads.h"

namespace tessera::testing {

/// Two threads, or one where OpenMP gives no more. The thread sanitizer does not see into OpenMP,
/// so the tests that it runs are under OMP_THREAD_LIMIT=1.
inline int two_threads() { return std::min(2, team_limit().threads); }

}  // namespace tessera::testing
