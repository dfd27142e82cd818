#include <array>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/interrupt.h"
#include "hardware/memory_rate.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MemorySweep, MeasuresEveryLoopOfEverySize) {
  std::vector<std::string> announced;
  const std::array<int64_t, 2> sizes{4096, 65536};
  const auto rates = measure_memory_sweep(
      sizes, 2, 0, [&](const std::string& what) { announced.push_back(what); });
  EXPECT_THAT(announced, ElementsAre("copy of 4.0 KiB", "scale of 4.0 KiB", "triad of 4.0 KiB",
                                     "update of 4.0 KiB", "copy of 64.0 KiB", "scale of 64.0 KiB",
                                     "triad of 64.0 KiB", "update of 64.0 KiB"));
  ASSERT_EQ(rates.size(), 8U);
  EXPECT_EQ(rates[3].kernel, MemoryKernel::update);
  EXPECT_EQ(rates[3].bytes, 4096);
  EXPECT_EQ(rates[4].kernel, MemoryKernel::copy);
  EXPECT_EQ(rates[4].bytes, 65536);
}

TEST(MemorySweep, ASignalEndsIt) {
  const InterruptGuard guard;
  const std::array<int64_t, 1> sizes{4096};
  int announced = 0;
  const auto interrupt = [&](const std::string&) {
    ++announced;
    std::raise(SIGINT);
  };
  EXPECT_THAT(error_of([&] { measure_memory_sweep(sizes, 1, 0, interrupt); }),
              HasSubstr("interrupted"));
  EXPECT_EQ(announced, 1);
}

TEST(MemorySweep, WorkingSetsFitIntoMemory) {
  require_memory(std::array<int64_t, 2>{1, 512}, 1024);
  for (const int64_t wrong : {int64_t{0}, int64_t{513}}) {
    EXPECT_THAT(error_of([&] {
                  require_memory(std::array<int64_t, 2>{1, wrong}, 1024);
                }),
                HasSubstr("give sizes from 1 byte to half of the 1.0 KiB of memory"));
  }
}

}  // namespace
}  // namespace tessera
