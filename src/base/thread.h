#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <pthread.h>

namespace tessera {

/// The stack of a Thread: 8 MiB, or what other threads of this process get where that is more. That
/// follows from the limit on stacks (ulimit -s), which may be too small for a step of training.
size_t thread_stack_bytes();

/// A thread with a stack of thread_stack_bytes(). Its end is awaited when this goes out of scope.
class Thread {
 public:
  /// Throws std::system_error when the system refuses a thread. The body must not throw.
  explicit Thread(std::function<void()> body);
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread();

 private:
  std::unique_ptr<std::function<void()>> body_;
  pthread_t thread_{};
};

}  // namespace tessera
