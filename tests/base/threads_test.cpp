#include "base/threads.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(ThreadsOrAll, ZeroStandsForTheMachinesCores) {
  EXPECT_EQ(threads_or_all(3), 3);
  EXPECT_GE(threads_or_all(0), 1);
}

}  // namespace
}  // namespace tessera
