#include "base/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/address_limit.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ThreadsOrAll, ZeroStandsForTheMachinesCores) {
  EXPECT_EQ(threads_or_all(3), 3);
  EXPECT_GE(threads_or_all(0), 1);
}

TEST(ThreadsOrAll, MoreThanAnyMachineHasAreRefused) {
  for (const int wanted : {4097, 100'000, 1'000'000}) {
    EXPECT_THAT(error_of([&] { threads_or_all(wanted); }),
                AllOf(HasSubstr(std::to_string(wanted) + " threads were asked for"),
                      HasSubstr("at most 4096"), HasSubstr("this machine has")));
  }
}

TEST(ThreadsOrAll, MoreThanTheSystemStartsAreRefused) {
  if (!AddressLimit::kWorks) GTEST_SKIP() << "the address sanitizer needs all addresses";
  // Each has a stack.
  const AddressLimit limit(int64_t{1} << 30);
  EXPECT_EQ(threads_or_all(4), 4);
  EXPECT_THAT(error_of([] { threads_or_all(2000); }),
              AllOf(HasSubstr("2000 threads were asked for, but the system lets this process have"),
                    HasSubstr("ulimit")));
}

}  // namespace
}  // namespace tessera
