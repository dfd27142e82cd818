#include "hardware/gemm_time.h"

#include <algorithm>
#include <csignal>

#include <gtest/gtest.h>

#include "base/interrupt.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

TEST(TimeGemm, CountsTheOperandsOfEveryThread) {
  const GemmShape shape{.m = 10,
                        .n = 20,
                        .k = 30,
                        .input = DType::bf16,
                        .output = DType::f32,
                        .transpose_a = true,
                        .threads = 2};
  // A [30, 10] and B [30, 20] in bf16, C [10, 20] in f32.
  const double tight = 2 * 300 + 2 * 600 + 4 * 200;
  EXPECT_DOUBLE_EQ(timed_gemm_bytes(shape, 2), tight);
  GemmShape alone = shape;
  alone.threads = 1;
  EXPECT_DOUBLE_EQ(timed_gemm_bytes(alone, 2), 2 * tight);
  GemmShape packed = shape;
  packed.packed_b = true;
  EXPECT_DOUBLE_EQ(timed_gemm_bytes(packed, 2), tight + 2 * 600);
  GemmShape spread = shape;
  spread.lda = 16;
  EXPECT_DOUBLE_EQ(timed_gemm_bytes(spread, 2), tight + 2 * 30 * 6);
}

TEST(TimeGemm, ARunIsAShareOfTheElapsedTime) {
  EXPECT_DOUBLE_EQ(seconds_a_run(6, 1, 1), 6);
  EXPECT_DOUBLE_EQ(seconds_a_run(6, 4, 1), 1.5);
  EXPECT_DOUBLE_EQ(seconds_a_run(6, 4, 3), 0.5);  // twelve runs in all
}

TEST(TimeGemm, ASignalEndsTheSamples) {
  const InterruptGuard guard;
  std::raise(SIGINT);
  const GemmShape shape{.m = 8, .n = 8, .k = 8};
  EXPECT_EQ(time_gemm(shape, 1, {.seconds = 1e9, .least_samples = 1000000}).size(), 1U);
}

/// A clock that stands still but for the runs of a runtime's products: each takes 30 microseconds,
/// the first ones a second, and two threads make two at once where a run takes one thread.
class ClockOfRuns {
 public:
  ClockOfRuns(Runtime& runtime, const GemmShape& product)
      : counter_(runtime), at_once_(product.threads == 1 ? runtime.threads() : 1) {}

  double seconds() {
    for (const GemmRuns& ran : counter_.take()) {
      const double rounds = static_cast<double>(ran.runs) / at_once_;
      seconds_ += runs_.empty() ? rounds : 30e-6 * rounds;
      runs_.push_back(ran);
    }
    return seconds_;
  }
  const std::vector<GemmRuns>& runs() const { return runs_; }

 private:
  GemmCounter counter_;
  int at_once_;
  double seconds_ = 0;
  std::vector<GemmRuns> runs_;
};

/// Samples of a millisecond by such a clock. All runs are of the product that was asked for: one to
/// touch the memory, then 1, 2, 4 and 8 of them until a sample is long enough, then samples of 8.
void expect_samples(const GemmShape& product) {
  constexpr int kThreads = 2;
  Runtime runtime(host_target(kThreads));
  ClockOfRuns clock(runtime, product);
  const auto seconds = time_gemm(runtime, product, {.seconds = 1e-3, .least_samples = 2},
                                 [&] { return clock.seconds(); });
  const int copies = product.threads == 1 ? kThreads : 1;
  ASSERT_EQ(seconds.size(), 4U);  // after 450, 690, 930 and 1170 microseconds
  for (const double sample : seconds) EXPECT_NEAR(sample, 30e-6 / copies, 1e-12);
  GemmShape written = product;
  written.lda = product.transpose_a ? product.m : product.k;
  written.ldb = product.transpose_b ? product.k : product.n;
  std::vector<GemmRuns> expected;
  for (const int64_t runs : {1, 1, 2, 4, 8, 8, 8, 8}) expected.push_back({written, runs * copies});
  EXPECT_EQ(clock.runs(), expected);
}

TEST(TimeGemm, EveryKindOfProductIsRunAndHasTheTimeOfItsRuns) {
  for (const int threads : {1, 2}) {
    for (const bool transpose : {false, true}) {
      for (const DType dtype : {DType::f32, DType::f64}) {
        const GemmShape shape{.m = 24,
                              .n = 8,
                              .k = 40,
                              .input = dtype,
                              .output = dtype,
                              .transpose_a = transpose,
                              .transpose_b = !transpose,
                              .accumulate = transpose,
                              .packed_b = transpose,
                              .ldc = 12,
                              .threads = threads};
        expect_samples(shape);
      }
    }
  }
}

TEST(TimeGemm, ManySamplesAreTakenHoweverLittleTimeThereIs) {
  const auto seconds = time_gemm({.m = 24, .n = 8, .k = 40}, 2, {.seconds = 0, .least_samples = 4});
  ASSERT_EQ(seconds.size(), 4U);
  EXPECT_GT(std::ranges::min(seconds), 0);
}

}  // namespace
}  // namespace tessera
