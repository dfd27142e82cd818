#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/host_target.h"
#include "support/gradient_check.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

using testing::random_tensor;

TEST(PackedGemm, LaysBOutForManyRowsOnly) {
  Runtime runtime(host_target(2));
  GemmCounter counter(runtime);
  const Tensor a = random_tensor({64, 48}, DType::f32, "a");
  const Tensor b = random_tensor({80, 48}, DType::f32, "b");
  std::vector<std::vector<float>> results;
  for (const int64_t rows : {511, 512}) {
    PackedGemm gemm(runtime, {.m = 32, .n = 80, .k = 48, .transpose_b = true}, rows);
    const Tensor workspace({gemm.workspace_bytes()}, DType::u8);
    const Tensor c({64, 80}, DType::f32);
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

/// Whether this build and processor have products that read B faster when it is laid out for them.
bool knows_packing() {
#if defined(__x86_64__)
  return make_onednn_gemm({.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1}, host_target(1)) !=
             nullptr &&
         __builtin_cpu_supports("avx512bw") != 0;
#else
  return false;
#endif
}

TEST(PackedGemm, TheLayoutIsAnotherThanTheCallers) {
  if (!knows_packing()) GTEST_SKIP() << "products take B as it lies";
  Runtime runtime(host_target(2));
  const Tensor b = random_tensor({256, 320}, DType::f32, "b");
  const GemmShape shape{.m = 256, .n = 320, .k = 256, .threads = 2};
  GemmShape packed = shape;
  packed.packed_b = true;
  const Gemm& gemm = prepare_gemm(runtime, packed);
  ASSERT_GE(gemm.packed_bytes(), b.bytes());
  const Tensor memory({gemm.packed_bytes()}, DType::u8);
  EXPECT_EQ(gemm.pack(b.raw(), memory.raw()), memory.raw());
  EXPECT_FALSE(std::equal(b.raw(), b.raw() + b.bytes(), memory.raw()));
  // As few rows as do not pay for it: B is taken as it lies.
  EXPECT_EQ(prepare_gemm(runtime, shape).packed_bytes(), 0);
  const auto planned = [&](const GemmShape& of) {
    return aligned_bytes(gemm_packed_bytes(runtime.target(), of)) +
           aligned_bytes(gemm_workspace_bytes(runtime.target(), of));
  };
  EXPECT_EQ(PackedGemm(runtime, shape, 512).workspace_bytes(), planned(packed));
  EXPECT_EQ(PackedGemm(runtime, shape, 511).workspace_bytes(), planned(shape));
  EXPECT_GE(gemm_packed_bytes(runtime.target(), packed), b.bytes());
}

}  // namespace
}  // namespace tessera
