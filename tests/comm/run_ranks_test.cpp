#include <algorithm>
#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include "comm/in_process/world.h"
#include "support/address_limit.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// While it lives, threads get a stack of `bytes` if they ask for none, as under ulimit -s.
class UsualStack {
 public:
  explicit UsualStack(size_t bytes) {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  UsualStack(const UsualStack&) = delete;
  UsualStack& operator=(const UsualStack&) = delete;
  ~UsualStack() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

size_t own_stack_bytes() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

TEST(RunRanks, HaveTheStackOfAMainThreadWhateverTheLimit) {
  constexpr size_t kUsual = size_t{8} << 20;
  for (const size_t usual : {size_t{256} << 10, size_t{12} << 20}) {
    const UsualStack limit(usual);
    World world(2);
    run_ranks(world, [&](int) { EXPECT_GE(own_stack_bytes(), std::max(usual, kUsual)); });
  }
}

TEST(RunRanks, NoneBeginsIfTheSystemRefusesAThread) {
  if (!AddressLimit::kWorks) GTEST_SKIP() << "the address sanitizer needs all addresses";
  std::atomic<int> begun = 0;
  std::string error;
  {
    const AddressLimit limit(int64_t{100} << 20);
    World world(64);
    error = error_of([&] { run_ranks(world, [&](int) { ++begun; }); });
  }
  EXPECT_THAT(error, AllOf(HasSubstr("cannot start the thread of rank "), HasSubstr(" of 64 ("),
                           HasSubstr("give fewer --ranks"), HasSubstr("ulimit -v")));
  EXPECT_EQ(begun, 0);
}

}  // namespace
}  // namespace tessera
