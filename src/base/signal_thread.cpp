#include "base/signal_thread.h"

#include <cstring>
#include <initializer_list>
#include <system_error>

#include <pthread.h>

#include "base/error.h"

namespace tessera {
namespace {

// The handler that runs in a child after fork() gets no arguments, so what it reads is global.
sigset_t blocked_before;                      // the signals that were blocked before
std::atomic<bool> signal_thread_runs{false};  // a SignalThread exists

/// Returns all signals but those that the system sends to the thread that causes them.
sigset_t signals_to_block() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPIPE, SIGXFSZ}) {
    sigdelset(&signals, signal);
  }
  return signals;
}

void unblock_in_child() {
  if (signal_thread_runs.load()) pthread_sigmask(SIG_SETMASK, &blocked_before, nullptr);
}

/// Makes child processes unblock signals, which they would otherwise inherit blocked. Libraries
/// start such processes: Open MPI starts its daemon if no launcher did, and CUDA starts a program
/// that makes the device files.
void unblock_in_child_processes() {
  // Handlers of fork() cannot be removed, so they are registered once.
  static const int refused = pthread_atfork(nullptr, nullptr, unblock_in_child);
  TESSERA_CHECK(refused == 0, "pthread_atfork: {}", std::strerror(refused));
}

}  // namespace

SignalThread::SignalThread() {
  TESSERA_CHECK(!signal_thread_runs.load(), "there is a thread for signals already");
  unblock_in_child_processes();
  const sigset_t blocked = signals_to_block();
  // The signals are blocked before the thread exists: a signal that comes meanwhile stays pending
  // until the thread takes it.
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
  signal_thread_runs = true;
}

SignalThread::~SignalThread() {
  ended_ = true;
  ended_.notify_one();
  thread_.join();
  signal_thread_runs = false;
  pthread_sigmask(SIG_SETMASK, &blocked_before, nullptr);
}

}  // namespace tessera
