#pragma once

#include <atomic>
#include <csignal>
#include <thread>

namespace tessera {

/// Runs all signal handlers of the process in a thread of its own. A handler's frame is written
/// below the stack pointer of the thread that it interrupts. The generated kernels of oneDNN keep
/// another value there, so the frame would overwrite the heap.
///
/// While it lives, the thread that made it blocks signals, and so do all threads that are started
/// by it. It must therefore be made before any other thread. Not blocked are the signals that a
/// thread gets for what it does itself: SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, and
/// SIGPIPE and SIGXFSZ of writes. They must have no handler, unless the process is to end there.
///
/// Child processes that fork() makes get the signals that were not blocked before. At most one
/// exists at a time.
class SignalThread {
 public:
  /// Throws Error if the system refuses a thread.
  SignalThread();
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace tessera
