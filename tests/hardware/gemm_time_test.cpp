#include "hardware/gemm_time.h"

#include <algorithm>
#include <csignal>

#include <gtest/gtest.h>

#include "base/interrupt.h"

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

TEST(TimeGemm, EveryKindOfProductHasItsTime) {
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
        const auto seconds = time_gemm(shape, 2, {.seconds = 0, .least_samples = 4});
        EXPECT_EQ(seconds.size(), 4U);
        EXPECT_GT(std::ranges::min(seconds), 0);
        EXPECT_LT(std::ranges::max(seconds), 10);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
