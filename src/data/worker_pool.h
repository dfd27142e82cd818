#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace tessera {

/// Thrown by an item's body to stop early without an error, because another item failed.
struct Cancelled {};

/// Calls body(item, cancelled) for each item of [0, count) on `threads` threads, which take the
/// items in ascending order. Calls `tick` on the calling thread about ten times a second. When a
/// body throws, or after a signal such as Ctrl-C (see InterruptGuard), sets `cancelled` and starts
/// no further item. After all threads have ended, throws the first error. An interrupt throws Error
/// with `interrupted_message`. A long-running body checks `cancelled` now and then and throws
/// Cancelled, which is not an error.
void run_workers(int threads, int64_t count, const char* interrupted_message,
                 const std::function<void(int64_t item, const std::atomic<bool>& cancelled)>& body,
                 const std::function<void()>& tick);

}  // namespace tessera
