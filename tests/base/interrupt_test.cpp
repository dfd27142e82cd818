#include "base/interrupt.h"

#include <csignal>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(InterruptGuard, TurnsTheFirstSignalIntoAFlag) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    const InterruptGuard guard;
    EXPECT_FALSE(InterruptGuard::requested());
    std::raise(signal);
    EXPECT_TRUE(InterruptGuard::requested());
  }
  const InterruptGuard fresh;
  EXPECT_FALSE(InterruptGuard::requested());
}

TEST(InterruptGuardDeathTest, TheSecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

/// A terminal that closes, a scheduler and the system may say so twice.
TEST(InterruptGuard, WarningsMayComeAgain) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    const InterruptGuard guard;
    std::raise(signal);
    std::raise(signal);
    EXPECT_TRUE(InterruptGuard::requested());
  }
}

TEST(InterruptGuard, WarningsThatWereIgnoredStaySo) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    const auto before = std::signal(signal, SIG_IGN);
    {
      const InterruptGuard guard;
      std::raise(signal);
      EXPECT_FALSE(InterruptGuard::requested());
    }
    EXPECT_EQ(std::signal(signal, before), SIG_IGN);
  }
}

TEST(InterruptGuard, GivesBackWhatWasThereBefore) {
  const auto handler = [](int) {};
  const auto before = std::signal(SIGTERM, handler);
  {
    const InterruptGuard guard;
    std::raise(SIGTERM);
  }
  EXPECT_EQ(std::signal(SIGTERM, before), static_cast<void (*)(int)>(handler));
}

TEST(InterruptGuardDeathTest, SignalsEndTheProcessWithoutAGuard) {
  EXPECT_EXIT(
      {
        { const InterruptGuard guard; }
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace tessera
