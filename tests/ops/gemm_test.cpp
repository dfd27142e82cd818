#include "ops/gemm/gemm.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/parallel.h"
#include "base/threads.h"
#include "ops/host_target.h"
#include "support/gradient_check.h"
#include "support/larger.h"
#include "support/run_program.h"

namespace tessera {
namespace {

using testing::random_tensor;

/// C of a shape from fixed random operands, in f64.
std::vector<double> product(const GemmShape& shape, Kernels kernels, int threads) {
  Runtime runtime(host_target(threads, kernels));
  GemmShape own = shape;
  own.threads = threads;
  // Operands are rounded to bf16 in every type, so that all start from the same numbers.
  const auto operand = [&](const Shape& dims, DType dtype, const char* name) {
    const Tensor narrow = random_tensor(dims, DType::bf16, name);
    const Tensor result(dims, dtype);
    convert(narrow, result);
    return result;
  };
  const Tensor a = operand({shape.m, shape.k}, shape.input, "a");
  const Tensor b = operand({shape.k, shape.n}, shape.input, "b");
  const Tensor c = operand({shape.m, shape.n}, shape.output, "c");
  const Gemm& gemm = prepare_gemm(runtime, own);
  const Tensor workspace({std::max<int64_t>(gemm.workspace_bytes(), 1)}, DType::u8);
  const Tensor packed({std::max<int64_t>(gemm.packed_bytes(), 1)}, DType::u8);
  gemm.run(a.raw(), gemm.pack(b.raw(), packed.raw()), c.raw(), workspace.raw());
  const Tensor wide(c.shape(), DType::f64);
  convert(c, wide);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

/// The largest difference over the largest entry.
double difference(const std::vector<double>& actual, const std::vector<double>& expected) {
  double largest = 1e-3, worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = testing::larger(worst, std::abs(actual[i] - expected[i]));
  }
  return worst / largest;
}

GemmShape random_gemm_shape() {
  GemmShape shape;
  shape.m = *rc::gen::inRange<int64_t>(1, 70);
  shape.n = *rc::gen::inRange<int64_t>(1, 70);
  shape.k = *rc::gen::inRange<int64_t>(1, 90);
  shape.transpose_a = *rc::gen::arbitrary<bool>();
  shape.transpose_b = *rc::gen::arbitrary<bool>();
  shape.accumulate = *rc::gen::arbitrary<bool>();
  shape.packed_b = *rc::gen::arbitrary<bool>();
  return shape;
}

RC_GTEST_PROP(Gemm, FastAgreesWithPlainInF32, ()) {
  const GemmShape shape = random_gemm_shape();
  GemmShape exact = shape;
  exact.input = exact.output = DType::f64;
  RC_ASSERT(difference(product(shape, Kernels::fast, 2), product(exact, Kernels::plain, 1)) < 1e-5);
}

/// Products whose sums oneDNN shares out over the threads of a team, and one of rows alone.
void expect_right_products(int threads, const std::string& limit) {
  for (const auto& [m, n, k] : {std::array{64, 64, 4096}, {33, 16, 2048}, {256, 256, 64}}) {
    GemmShape shape{.m = m, .n = n, .k = k};
    GemmShape exact = shape;
    exact.input = exact.output = DType::f64;
    for (const bool transpose : {false, true}) {
      shape.transpose_a = exact.transpose_a = transpose;
      EXPECT_LT(
          difference(product(shape, Kernels::fast, threads), product(exact, Kernels::plain, 1)),
          1e-5)
          << fmt::format("{} x {} x {}, {}", m, n, k, limit);
    }
  }
}

TEST(Gemm, IsRightWhereOpenMPStartsFewerThreads) {
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(0);
  EXPECT_EQ(team_limit().threads, 1);
  expect_right_products(2, "OMP_MAX_ACTIVE_LEVELS");
  omp_set_max_active_levels(levels);
#pragma omp teams num_teams(1) thread_limit(2)
  {
    EXPECT_EQ(team_limit().threads, 2);
    expect_right_products(4, "OMP_THREAD_LIMIT");
  }
  omp_set_dynamic(1);
  expect_right_products(8, "OMP_DYNAMIC");
  EXPECT_NE(omp_get_dynamic(), 0);
  omp_set_dynamic(0);
}

RC_GTEST_PROP(Gemm, BrainFloatStaysWithinItsRounding, ()) {
  GemmShape shape = random_gemm_shape();
  GemmShape exact = shape;
  exact.input = exact.output = DType::f64;
  const auto expected = product(exact, Kernels::plain, 1);
  shape.input = DType::bf16;
  // Products of bf16 numbers are exact in f32 and summed there: f32's accuracy.
  shape.output = DType::f32;
  RC_ASSERT(difference(product(shape, Kernels::fast, 2), expected) < 1e-5);
  // Rounded once to 8 significant bits: half an ulp is 2^-8 at most relative to the entry (2^-9 of
  // the binade's top); the sum post-operation adds in f32.
  shape.output = DType::bf16;
  RC_ASSERT(difference(product(shape, Kernels::fast, 2), expected) < 1.0 / 256 + 1e-5);
}

TEST(Gemm, PlainIsTheDefinition) {
  Runtime runtime(host_target(1, Kernels::plain));
  const double a[] = {1, 2, 3, 4, 5, 6};   // [2, 3], or [3, 2] transposed
  const double b[] = {1, 0, 2, -1, 1, 1};  // [3, 2], or [2, 3] transposed
  double c[] = {100, 100, 100, 100};
  prepare_gemm(runtime, {.m = 2, .n = 2, .k = 3, .input = DType::f64, .output = DType::f64})
      .run(a, b, c, nullptr);
  EXPECT_EQ((std::vector<double>(c, c + 4)), (std::vector<double>{8, 1, 20, 1}));
  prepare_gemm(runtime, {.m = 2,
                         .n = 2,
                         .k = 3,
                         .input = DType::f64,
                         .output = DType::f64,
                         .transpose_a = true,
                         .transpose_b = true,
                         .accumulate = true})
      .run(a, b, c, nullptr);
  // Aᵀ has columns (1, 3, 5) and (2, 4, 6); Bᵀ rows (1, 0, 2) and (-1, 1, 1).
  EXPECT_EQ((std::vector<double>(c, c + 4)), (std::vector<double>{8 + 11, 1 + 7, 20 + 14, 1 + 8}));
}

TEST(Gemm, StridedViewsAndEmptySizes) {
  Runtime runtime(host_target(2));
  const Tensor a = random_tensor({5, 20}, DType::f32, "a");
  const Tensor b = random_tensor({8, 20}, DType::f32, "b");
  const Tensor c({5, 32}, DType::f32);
  std::fill_n(c.data<float>(), c.elements(), 7.0F);
  const Gemm& gemm = prepare_gemm(
      runtime, {.m = 5, .n = 8, .k = 6, .transpose_b = true, .lda = 20, .ldb = 20, .ldc = 32});
  const Tensor workspace({gemm.workspace_bytes() + 1}, DType::u8);
  gemm.run(a.data<float>() + 3, b.data<float>() + 3, c.data<float>() + 2, workspace.raw());
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 32; ++j) {
      float expected = 7;
      if (j >= 2 && j < 10) {
        expected = 0;
        for (int p = 0; p < 6; ++p) {
          expected += a.data<float>()[i * 20 + 3 + p] * b.data<float>()[(j - 2) * 20 + 3 + p];
        }
      }
      EXPECT_NEAR(c.data<float>()[i * 32 + j], expected, 1e-5);
    }
  }
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{0, 4, 4}, {4, 0, 4}}) {
    prepare_gemm(runtime, {.m = m, .n = n, .k = k}).run(a.raw(), b.raw(), c.raw(), nullptr);
  }
  // An empty sum is zero.
  prepare_gemm(runtime, {.m = 1, .n = 2, .k = 0}).run(a.raw(), b.raw(), c.raw(), nullptr);
  EXPECT_EQ(c.data<float>()[0], 0);
  EXPECT_EQ(c.data<float>()[1], 0);
}

TEST(GemmCounter, CountsTheRunsOfEachProductWhileItLives) {
  Runtime runtime(host_target(2, Kernels::plain));
  const Tensor memory({64}, DType::f32);
  memory.fill_zero();
  const auto run = [&](const GemmShape& shape, int times) {
    for (int i = 0; i < times; ++i) {
      prepare_gemm(runtime, shape).run(memory.raw(), memory.raw(), memory.raw(), nullptr);
    }
  };
  const GemmShape small{.m = 2, .n = 3, .k = 4};
  const GemmShape large{.m = 4, .n = 4, .k = 4, .transpose_b = true};
  run(small, 5);
  {
    GemmCounter counter(runtime);
    EXPECT_TRUE(counter.take().empty()) << "runs before it";
    run(small, 3);
    run(large, 2);
    run({.m = 0, .n = 3, .k = 4}, 1);  // does nothing
    GemmShape small_written = small, large_written = large;
    small_written.lda = 4;
    small_written.ldb = small_written.ldc = 3;
    large_written.lda = large_written.ldb = large_written.ldc = 4;
    EXPECT_EQ(counter.take(), (std::vector<GemmRuns>{{large_written, 2}, {small_written, 3}}));
    EXPECT_TRUE(counter.take().empty()) << "taken already";
    EXPECT_THROW(GemmCounter{runtime}, InternalError);
    run(small, 1);
  }
  GemmCounter next(runtime);
  EXPECT_TRUE(next.take().empty());
}

TEST(Gemm, ARefusedShapeLeavesNothingBehind) {
  if (!make_onednn_gemm({.m = 1, .n = 1, .k = 1}, host_target(1)))
    GTEST_SKIP() << "plain loops refuse no shape";
  Runtime runtime(host_target(1));
  const GemmShape whole{.m = 2, .n = 2, .k = 2, .input = DType::i32, .output = DType::i32};
  for (int i = 0; i < 2; ++i) EXPECT_THROW(prepare_gemm(runtime, whole), InternalError);
  GemmCounter counter(runtime);  // visits all products
  EXPECT_TRUE(counter.take().empty());
}

TEST(GemmCounter, CountsRunsOfSeveralThreads) {
  Runtime runtime(host_target(2, Kernels::plain));
  const Tensor memory({4}, DType::f32);
  memory.fill_zero();
  const Gemm& gemm = prepare_gemm(runtime, {.m = 1, .n = 1, .k = 1});
  GemmCounter counter(runtime);
  parallel_items(2, 1000, [&](int64_t, int thread) {
    gemm.run(memory.raw(), memory.raw(), memory.raw() + 4 * (thread + 1), nullptr);
  });
  const std::vector<GemmRuns> runs = counter.take();
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].runs, 1000);
}

/// What a product keeps from run to run is one thread's at a time, however many there are.
TEST(Gemm, MoreThreadsThanTheContextHasGiveTheSameResults) {
  Runtime runtime(host_target(1));
  const GemmShape shape{.m = 24, .n = 16, .k = 40};
  const Gemm& gemm = prepare_gemm(runtime, shape);
  constexpr int kThreads = 4;
  const Tensor a = random_tensor({kThreads, 24, 40}, DType::f32, "a");
  const Tensor b = random_tensor({kThreads, 40, 16}, DType::f32, "b");
  const Tensor c({kThreads, 24, 16}, DType::f32);
  const Tensor workspace({kThreads, std::max<int64_t>(gemm.workspace_bytes(), 1)}, DType::u8);
  const auto multiply = [&](int64_t own) {
    gemm.run(a.slice(own, own + 1).raw(), b.slice(own, own + 1).raw(), c.slice(own, own + 1).raw(),
             workspace.slice(own, own + 1).raw());
  };
  for (int64_t own = 0; own < kThreads; ++own) multiply(own);
  const std::vector<float> alone(c.values<float>().begin(), c.values<float>().end());
  for (int repeat = 0; repeat < 1000; ++repeat) {
    c.fill_zero();
    parallel_ranges(kThreads, kThreads, 1, [&](int64_t begin, int64_t end, int) {
      for (int i = 0; i < 100; ++i) {
        for (int64_t own = begin; own < end; ++own) multiply(own);
      }
    });
    ASSERT_TRUE(std::ranges::equal(c.values<float>(), alone)) << "repeat " << repeat;
  }
}

/// C of a product of bf16, with gaps between rows, from numbers that `make`'s product starts with.
std::vector<double> with_gaps(const GemmShape& shape, const Gemm& gemm) {
  const int64_t a_rows = shape.transpose_a ? shape.k : shape.m;
  const int64_t b_rows = shape.transpose_b ? shape.n : shape.k;
  const Tensor a = random_tensor({a_rows, shape.lda}, shape.input, "a");
  const Tensor b = random_tensor({b_rows, shape.ldb}, shape.input, "b");
  const Tensor c = random_tensor({shape.m, shape.ldc}, shape.output, "c");
  const Tensor workspace({std::max<int64_t>(gemm.workspace_bytes(), 1)}, DType::u8);
  gemm.run(a.raw(), b.raw(), c.raw(), workspace.raw());
  return testing::as_doubles(c);
}

TEST(WidenedGemm, TakesAFewMegabytesWhateverTheShape) {
  for (const DType output : {DType::f32, DType::bf16}) {
    const GemmShape shape{.m = 100'000,
                          .n = 50'000,
                          .k = 64,
                          .input = DType::bf16,
                          .output = output,
                          .lda = 64,
                          .ldb = 50'000,
                          .ldc = 50'000};
    EXPECT_LE(make_widened_gemm(shape, make_plain_gemm)->workspace_bytes(), 13 << 20);
  }
}

TEST(WidenedGemm, GivesTheBitsOfTheSumsInWhateverPartsItTakesThem) {
  struct Sizes {
    int64_t m, n, k;
  };
  // In one part, in rows, in columns, in both, each with a rest.
  for (const auto& [m, n, k] :
       {Sizes{5, 7, 3}, Sizes{65, 3, 16384}, Sizes{3, 65, 16384}, Sizes{65, 65, 16384}}) {
    for (const int bits : {0, 6, 9, 15}) {
      if (m == n && bits != 6 && bits != 9) continue;  // which takes long
      GemmShape shape{.m = m, .n = n, .k = k, .input = DType::bf16};
      shape.output = (bits & 1) != 0 ? DType::bf16 : DType::f32;
      shape.transpose_a = (bits & 2) != 0;
      shape.transpose_b = (bits & 4) != 0;
      shape.accumulate = (bits & 8) != 0;
      shape.lda = (shape.transpose_a ? m : k) + 3;
      shape.ldb = (shape.transpose_b ? k : n) + 2;
      shape.ldc = n + 1;
      shape.threads = 2;
      const auto expected = with_gaps(shape, *make_plain_gemm(shape));
      const auto note = fmt::format("{} x {} x {}, {}", m, n, k, bits);
      EXPECT_TRUE(with_gaps(shape, *make_widened_gemm(shape, make_plain_gemm)) == expected) << note;
      const auto fast = [](const GemmShape& part) {
        std::unique_ptr<Gemm> product = make_onednn_gemm(part, host_target(1));
        return product ? std::move(product) : make_plain_gemm(part);
      };
      shape.packed_b = true;
      EXPECT_LE(difference(with_gaps(shape, *make_widened_gemm(shape, fast)), expected),
                shape.output == DType::bf16 ? 8e-3 : 1e-4)
          << note;
    }
  }
}

}  // namespace
}  // namespace tessera
