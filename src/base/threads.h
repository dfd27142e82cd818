#pragma once

#include <algorithm>
#include <string_view>

namespace tessera {

// How many threads a process and its ranks compute with.

/// The largest number of threads that a process may compute with.
inline constexpr int kMostThreads = 4096;

/// The limit on a team, which is the threads that OpenMP starts for one parallel loop.
struct TeamLimit {
  int threads = 0;
  std::string_view variable;  ///< the environment variable that sets it; empty if none
  int value = 0;              ///< the value of that variable
};

/// Returns the limit for teams of the calling thread. Each thread that was not started by OpenMP,
/// such as a rank's, has a team of its own, and the limit holds for each of these teams.
TeamLimit team_limit();

/// Returns the number of threads that a setting stands for. That is `wanted`. If `wanted` is 0, it
/// is the number of usable_cores(), or team_limit() if that is less. Throws Error, which names the
/// limit, if `wanted` is above kMostThreads or team_limit(), or if the system does not let this
/// process start that many. Without this check OpenMP would silently start smaller teams, or end
/// the process if it could not start a thread. `setting` is the setting's name, for messages.
int threads_or_all(int wanted, std::string_view setting = "the number of threads");

/// Returns the number of threads of each rank when the ranks share a machine's threads: equal
/// shares, at least one each. A remainder stays idle, so that no rank waits for a slower one.
inline int threads_of_rank(int threads, int ranks) { return std::max(1, threads / ranks); }

}  // namespace tessera
