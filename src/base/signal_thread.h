#pragma once

#include <atomic>
#include <csignal>
#include <thread>

namespace tessera {

/// A thread that runs all signal handlers of the process. A handler's frame is written below the
/// stack pointer of the thread that it interrupts. oneDNN's generated kernels keep another value in
/// that register, so the frame would overwrite the heap.
///
/// While it exists, the thread that made it blocks signals, and so do all threads that this thread
/// starts. It must therefore be made before any other thread. The system sends SIGSEGV, SIGBUS,
/// SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPIPE and SIGXFSZ to the thread that causes them, so these
/// are not blocked. They must have no handler, unless the process is to end there.
///
/// Child processes that fork() makes block only the signals that were blocked before. At most one
/// SignalThread exists at a time.
class SignalThread {
 public:
  /// Starts the thread. Throws Error if the system refuses it.
  SignalThread();
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  std::atomic<bool> ended_{false};  // the thread waits for it
  std::thread thread_;
};

}  // namespace tessera
