#include "plan/product_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hardware/processor.h"
#include "support/error_of.h"
#include "support/sample_trace.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TraceOrigin here(int threads) {
  const Processor processor = this_processor(threads);
  return {.processor = processor.name, .features = processor.features, .threads = threads};
}

TEST(MeasuringTimer, TimesProductsOfOneThreadAndOfAll) {
  const ProductTimer timer = measuring_timer(here(1));
  GemmShape small{.m = 16, .n = 16, .k = 16};
  GemmShape large{.m = 256, .n = 256, .k = 256};
  const double quick = timer(small);
  EXPECT_GT(quick, 0);
  EXPECT_GT(timer(large), quick) << "4096 times the work";
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
