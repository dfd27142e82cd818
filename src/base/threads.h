#pragma once

#include <string_view>

namespace tessera {

/// The largest number of threads that a process computes with.
inline constexpr int kMostThreads = 4096;

/// The most threads that OpenMP gives one team.
struct TeamLimit {
  int threads = 0;
  std::string_view variable;  ///< of the environment, which the user lowered; empty if none
  int value = 0;              ///< of that variable
};

/// The limit for teams of the calling thread. Each thread that was not started by OpenMP, such as a
/// rank, has a team of its own, and the limit holds for each of them.
TeamLimit team_limit();

/// The number of threads that a setting stands for: the setting itself, or for 0 one for
/// each of usable_cores(), within team_limit(). Throws Error if that is more than kMostThreads,
/// more than team_limit() or more than the system lets this process start, and names the limit.
/// OpenMP would end the process if it could not start a thread, and would start smaller teams in
/// silence. `setting` is the setting's name, for messages.
int threads_or_all(int wanted, std::string_view setting = "the number of threads");

}  // namespace tessera
