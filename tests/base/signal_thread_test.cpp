#include "base/signal_thread.h"

#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

namespace tessera {
namespace {

std::atomic<pid_t> handler_thread{0};

void note_thread(int /*signal*/) {
  handler_thread = ::gettid();
  handler_thread.notify_all();
}

/// The thread in which the handler of a signal to this process ran.
pid_t thread_of(int signal) {
  handler_thread = 0;
  std::signal(signal, note_thread);
  ::kill(::getpid(), signal);
  handler_thread.wait(0);
  return handler_thread;
}

/// A process of its own, which has no threads from other tests.
TEST(SignalThreadDeathTest, RunsTheHandlersWhicheverThreadsThereAre) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const SignalThread signals;
        std::atomic<bool> ended{false};
        std::atomic<pid_t> another{0};
        std::thread beside([&] {
          another = ::gettid();
          ended.wait(false);
        });
        const pid_t first = thread_of(SIGTERM);
        bool same = first != ::getpid() && first != another;
        // SIGALRM stands for those that libraries may take.
        for (const int signal : {SIGHUP, SIGUSR1, SIGXCPU, SIGALRM, SIGABRT}) {
          same = same && thread_of(signal) == first;
        }
        ended = true;
        ended.notify_all();
        beside.join();
        std::exit(same ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(SignalThreadDeathTest, WithoutAHandlerASignalEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const SignalThread signals;
        ::kill(::getpid(), SIGTERM);
        for (;;) ::pause();
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

/// Exits with 0 if this thread blocks just these signals.
[[noreturn]] void exit_comparing(const sigset_t& expected) {
  sigset_t own;
  pthread_sigmask(SIG_BLOCK, nullptr, &own);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&own, signal) != sigismember(&expected, signal)) std::_Exit(signal);
  }
  std::_Exit(0);
}

TEST(SignalThreadDeathTest, ChildrenBlockWhatTheProcessDidBefore) {
  GTEST_FLAG_SET(death_test_style, "fast");  // it forks
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  {
    const SignalThread signals;
    EXPECT_EXIT(exit_comparing(before), ::testing::ExitedWithCode(0), "");
  }
  EXPECT_EXIT(exit_comparing(before), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera
