#pragma once

#include <functional>
#include <memory>

#include <pthread.h>

namespace tessera {

/// A thread with a stack of at least 8 MiB. The stacks of other threads follow the user's limit
/// (ulimit -s), and a training step may need more. The destructor waits for the thread's end.
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
