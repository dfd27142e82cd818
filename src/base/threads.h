#pragma once

namespace tessera {

/// The largest number of threads that a process computes with.
inline constexpr int kMostThreads = 4096;

/// The number of threads that a setting stands for: the setting itself, or all cores of the machine
/// for 0. Throws Error if that is more than kMostThreads or more than the system lets this process
/// start, and names the limit. OpenMP would end the process if it could not start a thread.
int threads_or_all(int wanted);

}  // namespace tessera
