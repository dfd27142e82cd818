#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <pthread.h>

namespace tessera {

/// Returns the size of a Thread's stack: 8 MiB, or the size that other threads of this process get
/// if that is more. The latter follows from the limit on stacks (ulimit -s), which may be too small
/// for a training step.
size_t thread_stack_bytes();

/// A thread with a stack of thread_stack_bytes(). The destructor waits for its end.
class Thread {
 public:
  /// Starts the thread. Throws std::system_error if the system refuses it. The body must not throw.
  explicit Thread(std::function<void()> body);
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread();

 private:
  std::unique_ptr<std::function<void()>> body_;
  pthread_t thread_{};
};

}  // namespace tessera
