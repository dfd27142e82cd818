#include "base/interrupt.h"

#include <csignal>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(InterruptGuard, TurnsTheFirstSignalIntoAFlag) {
  for (const int signal : {SIGINT, SIGTERM}) {
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
