#pragma once

#include <algorithm>

namespace tessera {

/// Returns the number of threads of each rank when the ranks share a machine's threads: equal
/// shares, at least one each. A remainder stays idle, so that no rank waits for a slower one.
inline int threads_of_rank(int threads, int ranks) { return std::max(1, threads / ranks); }

}  // namespace tessera
