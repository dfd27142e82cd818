#include "base/progress.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Progress, PrintsTheLastLineOnce) {
  ::testing::internal::CaptureStderr();  // to a file, which is not a terminal
  {
    Progress progress;
    progress.show("all of it");
    progress.show("all of it", true);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "all of it\n");
}

TEST(Progress, PrintsTheLastLineThoughItIsNotDue) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress;
    progress.show("a part");
    progress.show("most");
    progress.show("all of it", true);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "a part\nall of it\n");
}

}  // namespace
}  // namespace tessera
