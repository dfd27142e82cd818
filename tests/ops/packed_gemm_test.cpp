#include "ops/gemm/packed_gemm.h"

#include <vector>

#include <gtest/gtest.h>

#include "support/gradient_check.h"

namespace tessera {
namespace {

using testing::random_tensor;

TEST(PackedGemm, LaysBOutForManyRowsOnly) {
  MemoryPool pool;
  Context context(2, Kernels::fast, &pool);
  GemmCounter counter(context);
  const Tensor a = random_tensor(pool, {64, 48}, DType::f32, "a");
  const Tensor b = random_tensor(pool, {80, 48}, DType::f32, "b");
  std::vector<std::vector<float>> results;
  for (const int64_t rows : {511, 512}) {
    PackedGemm gemm(context, {.m = 32, .n = 80, .k = 48, .transpose_b = true}, rows);
    const Tensor workspace(pool, {gemm.workspace_bytes()}, DType::u8);
    const Tensor c(pool, {64, 80}, DType::f32);
    gemm.pack(b.raw(), workspace.raw());
    gemm.run(a.raw(), c.raw());
    gemm.run(a.slice(32, 64).raw(), c.slice(32, 64).raw());
    results.emplace_back(c.values<float>().begin(), c.values<float>().end());
    const auto ran = counter.take();
    ASSERT_EQ(ran.size(), 1U);
    EXPECT_EQ(ran[0].runs, 2);
    EXPECT_EQ(ran[0].shape.packed_b, rows == 512);
  }
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 80; ++j) {
      double expected = 0;
      for (int64_t p = 0; p < 48; ++p) {
        expected += double{a.data<float>()[i * 48 + p]} * b.data<float>()[j * 48 + p];
      }
      for (const auto& result : results) {
        ASSERT_NEAR(result[static_cast<size_t>(i * 80 + j)], expected, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
