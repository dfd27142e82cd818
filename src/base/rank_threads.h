#pragma once

#include <algorithm>

namespace tessera {

/// The threads of each of several ranks that share those of a machine: equal shares, at least one
/// each. A rest that does not divide is left idle, so that no rank waits for a slower one.
inline int threads_of_rank(int threads, int ranks) { return std::max(1, threads / ranks); }

}  // namespace tessera
