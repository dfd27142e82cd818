#include <algorithm>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/interrupt.h"
#include "device/emulated_accelerator.h"
#include "hardware/device_rate.h"
#include "hardware/gemm_sweep.h"
#include "hardware/memory_rate.h"
#include "ops/host_target.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(DeviceRates, FailuresAreNotTakenForATypeWithoutProducts) {
  Target target = host_target(1);
  target.device = Device::emulated;
  Runtime runtime(target, open_emulated());
  EXPECT_TRUE(DeviceRates(runtime).has_gemm(DType::bf16));
  Runtime small(target, open_emulated(32, {}, 1));  // without memory for the operands
  EXPECT_THAT(error_of([&] { DeviceRates(small).has_gemm(DType::bf16); }), HasSubstr("memory"));
}

TEST(GemmSweep, OfNoTypeIsAnError) {
  EXPECT_THAT(error_of([] {
                measure_gemm_sweep({.dtypes = {}}, 1, [](const std::string&, size_t, size_t) {});
              }),
              HasSubstr("there is no matrix product to measure"));
}

TEST(GemmRate, LayoutsAreTheProductsOfALinearLayer) {
  const auto shape = [](GemmLayout layout) {
    return gemm_shape({.dtype = DType::bf16, .layout = layout, .m = 48, .n = 32, .k = 64}, 2);
  };
  GemmShape expected{.m = 48,
                     .n = 32,
                     .k = 64,
                     .input = DType::bf16,
                     .output = DType::bf16,
                     .transpose_b = true,
                     .threads = 2};
  EXPECT_EQ(shape(GemmLayout::forward), expected);
  expected.transpose_b = false;
  EXPECT_EQ(shape(GemmLayout::input_gradient), expected);
  expected.transpose_a = expected.accumulate = true;
  expected.output = DType::f32;
  EXPECT_EQ(shape(GemmLayout::weight_gradient), expected);
}

TEST(GemmRate, IsThatOfTheFastestAndOfTheMedianSample) {
  const GemmRate product{.m = 50, .n = 20, .k = 10};  // 20000 operations
  const GemmRate rate = rate_of_samples(product, std::vector{0.5, 0.25, 2.0});
  EXPECT_DOUBLE_EQ(rate.best, 80000);
  EXPECT_DOUBLE_EQ(rate.median, 40000);
  const GemmRate measured = measure_gemm(product, 2, {.seconds = 0, .least_samples = 2});
  EXPECT_GT(measured.median, 0);
  EXPECT_EQ(measured.k, 10);
}

TEST(GemmRate, IsDescribedWithItsOperands) {
  GemmRate product{.dtype = DType::bf16, .m = 48, .n = 32, .k = 64};
  EXPECT_EQ(describe(product), "bf16 48x32x64");
  EXPECT_EQ(gemm_operand_bytes(product), 2.0 * (48 * 64 + 32 * 64 + 48 * 32));
  product.layout = GemmLayout::weight_gradient;
  EXPECT_EQ(describe(product), "bf16 48x32x64 weight_gradient");
  EXPECT_EQ(gemm_operand_bytes(product), 2.0 * (48 * 64 + 32 * 64) + 4.0 * 48 * 32);
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
  const auto [rates, left_out] =
      measure_gemm_sweep(sweep, 1, [&](const std::string&, size_t now, size_t all) {
        EXPECT_EQ(all, 8U);
        done.push_back(now);
      });
  EXPECT_THAT(left_out, IsEmpty());
  EXPECT_THAT(done, ElementsAre(0, 0, 1, 2, 3, 4, 5, 6, 7, 8));
  int asked = 0;
  for (const GemmRate& rate : rates) asked += asks_for(sweep, rate) ? 1 : 0;
  EXPECT_EQ(asked, 8);
  EXPECT_GT(rates.size(), 8U);  // and squares
}

/// Plain loops on one thread, of which none does a tera of operations a second.
TEST(GemmSweep, NamesTheProductsThatTakeTooLong) {
  GemmSweep sweep{.m = {1, 4096}, .n = {1, 4096}, .k = {1, 4096}, .dtypes = {DType::f64}};
  sweep.seconds = 0;
  const auto none = [](const std::string&, size_t, size_t) {};
  const auto [rates, left_out] = measure_gemm_sweep(sweep, 1, none);
  ASSERT_FALSE(left_out.empty());
  EXPECT_EQ(describe(left_out.back()), "f64 4096x4096x4096");
  for (const GemmRate& product : left_out) EXPECT_EQ(product.best, 0);
  EXPECT_EQ(std::ranges::count_if(rates, [&](const auto& rate) { return asks_for(sweep, rate); }),
            static_cast<int64_t>(8 - left_out.size()));
}

/// Plain loops again. Longer measuring is advised where it may be long enough.
TEST(GemmSweep, SaysHowLongARunMayTakeWhenNoneIsMeasured) {
  GemmSweep sweep{.m = {8192}, .n = {8192}, .k = {8192}, .dtypes = {DType::f64}, .seconds = 0};
  const auto error = [&] {
    return error_of([&] { measure_gemm_sweep(sweep, 1, [](const auto&, size_t, size_t) {}); });
  };
  EXPECT_THAT(error(), AllOf(HasSubstr("every product would take more than 1 s a run"),
                             HasSubstr("lower --m, --n or --k, or raise --seconds above ")));
  sweep.seconds = 6;  // a quarter of it
  EXPECT_THAT(error(), HasSubstr("every product would take more than 1.5 s a run"));
  sweep.m = sweep.n = sweep.k = {int64_t{1} << 20};
  EXPECT_THAT(error(), AllOf(HasSubstr("lower --m, --n or --k"), Not(HasSubstr("--seconds"))));
}

TEST(GemmSweep, ASignalEndsIt) {
  const InterruptGuard guard;
  std::raise(SIGINT);
  const GemmSweep sweep{.m = {8}, .n = {8}, .k = {8}, .dtypes = {DType::f64}, .seconds = 0};
  EXPECT_THAT(
      error_of([&] { measure_gemm_sweep(sweep, 1, [](const std::string&, size_t, size_t) {}); }),
      HasSubstr("interrupted"));
}

TEST(GemmSweep, OperandsFitIntoMemory) {
  require_memory(GemmSweep{});
  const int64_t large = int64_t{1} << 20;
  const GemmSweep sweep{.m = {8, large}, .n = {large}, .k = {large}, .dtypes = {DType::f32}};
  EXPECT_THAT(
      error_of([&] { require_memory(sweep); }),
      AllOf(HasSubstr("f32 8x1048576x1048576 take 4.0 TiB"), HasSubstr("lower --m, --n or --k")));
}

TEST(MemoryRate, CountsWhatTheLoopMoves) {
  const MemoryRate copy = measure_memory(MemoryKernel::copy, 1 << 16, 2, 0);
  EXPECT_EQ(copy.bytes, 1 << 16);
  // A size that is no whole number of elements, and one that is less than an element.
  EXPECT_GT(measure_memory(MemoryKernel::triad, 1000, 2, 0).best, 0);
  EXPECT_GT(measure_memory(MemoryKernel::scale, 1, 2, 0).best, 0);
  EXPECT_GT(copy.median, 0);
  EXPECT_GE(copy.best, copy.median);
  EXPECT_GT(measure_memory(MemoryKernel::update, 1000, 2, 0).best, 0);
}

TEST(MemoryRate, BytesAreWholeElementsOfEveryArrayAndThread) {
  const MemoryPass copy = memory_pass(MemoryKernel::copy, 1 << 16, 2);
  EXPECT_EQ(copy.elements, 2048);
  EXPECT_EQ(copy.bytes(), 1 << 16);
  EXPECT_DOUBLE_EQ(copy.rate(3, 0.5), 6 * 65536.0);
  const MemoryPass triad = memory_pass(MemoryKernel::triad, 1000, 2);  // 20.8 elements
  EXPECT_EQ(triad.elements, 20);
  EXPECT_EQ(triad.bytes(), 3 * 8 * 2 * 20);
  const MemoryPass scale = memory_pass(MemoryKernel::scale, 1, 2);
  EXPECT_EQ(scale.elements, 1);
  EXPECT_EQ(scale.bytes(), 2 * 8 * 2);
  // Two arrays, one of them read and written.
  const MemoryPass update = memory_pass(MemoryKernel::update, 1 << 16, 2);
  EXPECT_EQ(update.elements, 2048);
  EXPECT_EQ(update.bytes(), 3 * 8 * 2 * 2048);
}

TEST(MemoryRate, SweepsFromFirstLevelCacheToMemory) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto sizes = memory_sweep_sizes(int64_t{100} << 20, 3, kMost);
  EXPECT_EQ(sizes.front(), 3 * (16 << 10));
  EXPECT_GE(sizes.back(), int64_t{400} << 20);
  EXPECT_LT(sizes.back(), int64_t{800} << 20);
  EXPECT_GE(memory_sweep_sizes(0, 1, kMost).back(), int64_t{256} << 20);
  EXPECT_EQ(memory_sweep_sizes(int64_t{1} << 30, 1, 100 << 10).back(), 64 << 10);
}

}  // namespace
}  // namespace tessera
