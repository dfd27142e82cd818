#include "base/signal_thread.h"

#include <array>
#include <cstring>
#include <system_error>

#include <pthread.h>

#include "base/error.h"

namespace tessera {
namespace {

/// The signals that the process blocked before. It is a global, because the handlers of fork() can
/// reach only globals.
sigset_t blocked_before;
std::atomic<bool> lives{false};

constexpr std::array kOfTheThreadItself{SIGSEGV, SIGBUS, SIGFPE,  SIGILL,
                                        SIGTRAP, SIGSYS, SIGPIPE, SIGXFSZ};

sigset_t signals_from_outside() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int signal : kOfTheThreadItself) sigdelset(&signals, signal);
  return signals;
}

void unblock_in_child() {
  if (lives.load()) pthread_sigmask(SIG_SETMASK, &blocked_before, nullptr);
}

/// Makes child processes unblock signals. Libraries start such processes: Open MPI starts its
/// daemon if no launcher did, and CUDA starts a program that makes the device files.
void free_child_processes() {
  static const int refused = pthread_atfork(nullptr, nullptr, unblock_in_child);
  TESSERA_CHECK(refused == 0, "pthread_atfork: {}", std::strerror(refused));
}

}  // namespace

SignalThread::SignalThread() {
  TESSERA_CHECK(!lives.load(), "there is a thread for signals already");
  free_child_processes();
  const sigset_t blocked = signals_from_outside();
  // The signals are blocked before the thread exists, so a signal that comes meanwhile waits for
  // it.
  pthread_sigmask(SIG_BLOCK, &blocked, &blocked_before);
  try {
    thread_ = std::thread([this] {
      pthread_sigmask(SIG_SETMASK, &blocked_before, nullptr);
      ended_.wait(false);
    });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &blocked_before, nullptr);
    throw Error(
        "cannot start the thread that takes signals ({}); raise the limits on processes (ulimit "
        "-u, pids.max) or memory (ulimit -v)",
        error.code().message());
  }
  lives = true;
}

SignalThread::~SignalThread() {
  ended_ = true;
  ended_.notify_one();
  thread_.join();
  lives = false;
  pthread_sigmask(SIG_SETMASK, &blocked_before, nullptr);
}

}  // namespace tessera
