#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hardware/gemm_sweep.h"
#include "hardware/memory_rate.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GemmRate, EveryLayoutIsMeasured) {
  for (size_t layout = 0; layout < kGemmLayouts.size(); ++layout) {
    const GemmRate shape{.layout = static_cast<GemmLayout>(layout), .m = 48, .n = 32, .k = 64};
    const GemmRate rate = measure_gemm(shape, 2, {.seconds = 0, .least_samples = 2});
    EXPECT_GT(rate.median, 0) << kGemmLayouts[layout];
    EXPECT_GE(rate.best, rate.median);
    EXPECT_EQ(rate.flops(), 2.0 * 48 * 32 * 64);
    EXPECT_EQ(gemm_layout_from_name(kGemmLayouts[layout]), shape.layout);
  }
  EXPECT_THAT(error_of([] { gemm_layout_from_name("sideways"); }),
              HasSubstr("known are forward, input_gradient, weight_gradient"));
}

/// Plain loops, whose large squares would take minutes: a small one stands for them.
TEST(GemmRate, SquaresThatTakeTooLongAreLeftOut) {
  const auto squares = measure_square_gemms(2, DType::f64);
  ASSERT_FALSE(squares.empty());
  EXPECT_LE(squares.back().flops() / squares.back().best, 4);
  EXPECT_GE(squares.front().m, 256);
  EXPECT_GT(measure_gemm_peak(2, DType::f64), 0);
}

TEST(GemmSweep, HasEveryProductOnce) {
  ASSERT_TRUE(has_gemm(DType::f64));
  const GemmSweep sweep{.m = {8, 16},
                        .n = {24},
                        .k = {32, 40},
                        .layouts = {GemmLayout::forward, GemmLayout::weight_gradient},
                        .dtypes = {DType::f64},
                        .seconds = 0};
  std::vector<size_t> done;
  const auto rates = measure_gemm_sweep(sweep, 1, [&](const std::string&, size_t now, size_t all) {
    EXPECT_EQ(all, 8U);
    done.push_back(now);
  });
  EXPECT_THAT(done, ElementsAre(0, 0, 1, 2, 3, 4, 5, 6, 7, 8));
  int asked = 0;
  for (const GemmRate& rate : rates) asked += rate.n == 24 ? 1 : 0;
  EXPECT_EQ(asked, 8);
  EXPECT_GT(rates.size(), 8U);  // and squares
}

TEST(MemoryRate, CountsWhatTheLoopMoves) {
  const MemoryRate copy = measure_memory(MemoryKernel::copy, 1 << 16, 2, 0);
  EXPECT_EQ(copy.bytes, 1 << 16);
  // A size that is no whole number of elements, and one that is less than an element.
  EXPECT_GT(measure_memory(MemoryKernel::triad, 1000, 2, 0).best, 0);
  EXPECT_GT(measure_memory(MemoryKernel::scale, 1, 2, 0).best, 0);
  EXPECT_GT(copy.median, 0);
  EXPECT_GE(copy.best, copy.median);
  EXPECT_EQ(memory_kernel_from_name("triad"), MemoryKernel::triad);
  EXPECT_THAT(error_of([] { memory_kernel_from_name("add"); }), HasSubstr("copy, scale, triad"));
}

TEST(MemoryRate, SweepsFromFirstLevelCacheToMemory) {
  const auto sizes = memory_sweep_sizes(int64_t{100} << 20, 3);
  EXPECT_EQ(sizes.front(), 3 * (16 << 10));
  EXPECT_GE(sizes.back(), int64_t{400} << 20);
  EXPECT_LT(sizes.back(), int64_t{800} << 20);
  EXPECT_GE(memory_sweep_sizes(0, 1).back(), int64_t{256} << 20);
}

}  // namespace
}  // namespace tessera
