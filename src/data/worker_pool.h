#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace tessera {

/// Leaves an item half done without an error, because another one failed.
struct Cancelled {};

/// Calls body(item, cancelled) for each item of [0, count) on `threads` threads, handed out in
/// order, and `tick` on the calling thread about ten times a second. When a body throws, or Ctrl-C
/// came (see InterruptGuard), `cancelled` is set, no further item starts, and after all threads
/// have ended the first error is thrown. A body that runs long looks at `cancelled` now and then
/// and throws Cancelled. An interrupt throws Error with `interrupted_message`.
void run_workers(int threads, int64_t count, const char* interrupted_message,
                 const std::function<void(int64_t item, const std::atomic<bool>& cancelled)>& body,
                 const std::function<void()>& tick);

}  // namespace tessera
