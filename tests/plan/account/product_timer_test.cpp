#include "plan/account/product_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hardware/processor.h"
#include "support/error_of.h"
#include "support/sample_trace.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TraceOrigin here(int threads) {
  const Processor processor = this_processor(threads);
  return {.processor = processor.name, .features = processor.features, .threads = threads};
}

/// What the samples hold is tested where they are taken, by a clock that counts the runs.
TEST(MeasuringTimer, MeasuresHereWhenLeftToItself) {
  const ProductMeasuring measuring = measuring_here();
  EXPECT_GE(measuring.threads, 1);
  EXPECT_THAT(measuring.samples({.m = 16, .n = 16, .k = 16}, 1),
              AllOf(SizeIs(Ge(3U)), Each(Gt(0.0))));
  EXPECT_GT(measuring.rate(DType::f32, 1), 0);
  EXPECT_GT(measuring_timer(here(1))({.m = 16, .n = 16, .k = 16}), 0);
}

/// Two threads that do 1 GFLOP/s together and note what they are asked for.
class TwoThreads {
 public:
  ProductTimer timer() {
    return measuring_timer(here(2), {.threads = 2,
                                     .samples =
                                         [this](const GemmShape& shape, int threads) {
                                           timed.emplace_back(shape.threads, threads);
                                           return std::vector{0.5, 0.25, 0.75};
                                         },
                                     .rate =
                                         [this](DType dtype, int threads) {
                                           rated.emplace_back(dtype, threads);
                                           return 1e9;
                                         }});
  }
  std::vector<std::pair<int, int>> timed;
  std::vector<std::pair<DType, int>> rated;
};

TEST(MeasuringTimer, RefusesTheTraceOfADevice) {
  TraceOrigin origin = here(1);
  origin.device = Device::cuda;
  origin.accelerator = "NVIDIA H200";
  EXPECT_THAT(error_of([&] { measuring_timer(origin); }),
              AllOf(HasSubstr("comes from NVIDIA H200"), HasSubstr("leave --measure out"),
                    HasSubstr("bench gemm --device cuda")));
}

TEST(MeasuringTimer, TimesProductsOfOneThreadAndOfAll) {
  TwoThreads two;
  const ProductTimer timer = two.timer();
  EXPECT_EQ(timer({.m = 16, .n = 16, .k = 16, .threads = 1}), 0.25) << "the best sample";
  EXPECT_EQ(timer({.m = 16, .n = 16, .k = 16, .threads = 2}), 0.25);
  EXPECT_EQ(timer({.m = 16, .n = 16, .k = 16, .input = DType::bf16, .threads = 2}), 0.25);
  EXPECT_THAT(two.timed, ElementsAre(std::pair(1, 2), std::pair(2, 2), std::pair(2, 2)));
  EXPECT_THAT(two.rated, ElementsAre(std::pair(DType::f32, 2), std::pair(DType::bf16, 2)))
      << "each type once, with the threads of the run";
}

TEST(MeasuringTimer, AProductOfOneThreadHasItsShareOfTheRate) {
  TwoThreads two;
  const ProductTimer timer = two.timer();
  // 8 GFLOP: 8 s of both threads, 16 s of one.
  EXPECT_EQ(timer({.m = 1000, .n = 1000, .k = 4000, .threads = 2}), 0.25);
  EXPECT_THAT(
      error_of([&] { timer({.m = 1000, .n = 1000, .k = 4000, .threads = 1}); }),
      HasSubstr("one run would take 16 s at the 5e+08 FLOP/s of its 1 threads, expected 10 s"));
  // 4 GFLOP: 8 s of one.
  EXPECT_EQ(timer({.m = 1000, .n = 1000, .k = 2000, .threads = 1}), 0.25);
}

TEST(MeasuringTimer, RefusesAnotherMachine) {
  EXPECT_THAT(error_of([] { measuring_timer({.processor = "Zuse Z3", .threads = 1}); }),
              HasSubstr("the trace comes from Zuse Z3, 1 thread (), this is"));
  TraceOrigin other = here(1);
  other.features.emplace_back("abacus");
  EXPECT_THAT(error_of([&] { measuring_timer(other); }), HasSubstr("abacus), this is"));
  EXPECT_THAT(error_of([] { measuring_timer(here(60000)); }),
              HasSubstr("the trace comes from 60000 threads"));
}

TEST(MeasuringTimer, RefusesWhatDoesNotFit) {
  const ProductTimer timer = measuring_timer(here(1));
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(error_of([&] { timer({.m = huge, .n = huge, .k = huge}); }),
              HasSubstr("cannot be measured here"));
  EXPECT_THAT(error_of([&] { timer({.m = 8, .n = 8, .k = 8, .lda = huge}); }),
              HasSubstr("cannot be measured here"));
  EXPECT_THAT(error_of([&] { timer({.m = 8, .n = 8, .k = 8, .threads = 60000}); }),
              HasSubstr("on 60000 threads"));
}

TEST(MeasuringTimer, RefusesWhatWouldTakeLong) {
  const ProductTimer timer = measuring_timer(here(1));
  // Operands of 1.6 GB, and minutes of plain loops.
  const GemmShape shape{.m = 8192, .n = 8192, .k = 8192, .input = DType::f64, .output = DType::f64};
  EXPECT_THAT(
      error_of([&] { timer(shape); }),
      AllOf(HasSubstr("a product of 8192 x 8192 x 8192 in f64"), HasSubstr("10 s at most")));
}

}  // namespace
}  // namespace tessera
