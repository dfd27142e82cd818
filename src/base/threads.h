#pragma once

namespace tessera {

/// The most threads that a process computes with.
inline constexpr int kMostThreads = 4096;

/// The number of threads that a setting stands for: itself, or all cores of the machine for 0.
/// Throws Error when it is more than kMostThreads or than the system lets this process start,
/// naming that limit: OpenMP ends the process where it cannot start a thread.
int threads_or_all(int wanted);

}  // namespace tessera
