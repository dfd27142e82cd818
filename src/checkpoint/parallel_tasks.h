#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include "base/parallel.h"

namespace tessera {

/// Calls task(index) for each index of [0, count) on at most `threads` threads. If tasks throw, all
/// others still run. Then the exception of the lowest index is rethrown, however the threads ran.
template <typename Task>
void parallel_tasks(int threads, int64_t count, Task&& task) {
  std::vector<std::exception_ptr> failures(static_cast<size_t>(count));
  parallel_items(threads, count, [&](int64_t index, int) {
    try {
      task(index);
    } catch (...) {
      failures[static_cast<size_t>(index)] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace tessera
