#include "base/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

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
                      HasSubstr("at most 4096"), HasSubstr("this process may use")));
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

TEST(ThreadsOrAll, MoreThanOpenMPStartsAreRefused) {
#pragma omp teams num_teams(1) thread_limit(3)
  {
    EXPECT_EQ(threads_or_all(3), 3);
    EXPECT_LE(threads_or_all(0), 3);
    EXPECT_THAT(error_of([] { threads_or_all(4, "run.threads"); }),
                AllOf(HasSubstr("run.threads is 4, but OMP_THREAD_LIMIT is 3"),
                      HasSubstr("at most 3 threads")));
  }
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(0);
  EXPECT_EQ(threads_or_all(0), 1);
  EXPECT_THAT(error_of([] { threads_or_all(2, "--threads"); }),
              AllOf(HasSubstr("--threads is 2, but OMP_MAX_ACTIVE_LEVELS is 0"),
                    HasSubstr("at most 1 thread ")));
  omp_set_max_active_levels(levels);
}

TEST(RankThreads, AreEqualSharesOfThoseOfTheMachine) {
  EXPECT_EQ(threads_of_rank(8, 1), 8);
  EXPECT_EQ(threads_of_rank(8, 2), 4);
  EXPECT_EQ(threads_of_rank(8, 8), 1);
  // What does not divide is left over.
  EXPECT_EQ(threads_of_rank(7, 2), 3);
  EXPECT_EQ(threads_of_rank(11, 4), 2);
  // More ranks than threads.
  EXPECT_EQ(threads_of_rank(2, 8), 1);
  EXPECT_EQ(threads_of_rank(1, 16), 1);
}

}  // namespace
}  // namespace tessera
