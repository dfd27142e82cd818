#include "ops/gemm/gemm_plan.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/host_target.h"
#include "support/run_program.h"

namespace tessera {
namespace {

MatrixInstructions instructions_named(const std::string& name) {
  if (name == "avx512") return MatrixInstructions::avx512;
  if (name == "avx512_bf16") return MatrixInstructions::avx512_bf16;
  if (name == "amx") return MatrixInstructions::amx;
  throw InternalError("unknown instructions " + name);
}

/// A line of the fixture that tests/reference/onednn_memory.cpp makes.
struct Asked {
  explicit Asked(const std::string& line) {
    std::istringstream text(line);
    std::vector<std::string> fields;
    for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
    const auto number = [&](size_t at) { return std::stoll(fields.at(at)); };
    shape = {.m = number(1),
             .n = number(2),
             .k = number(3),
             .input = dtype_from_name(fields.at(4)),
             .output = dtype_from_name(fields.at(5)),
             .transpose_a = number(6) != 0,
             .transpose_b = number(7) != 0,
             .accumulate = number(8) != 0,
             .packed_b = number(9) != 0,
             .lda = number(10),
             .ldb = number(11),
             .ldc = number(12),
             .threads = static_cast<int>(number(13))};
    target = {.threads = shape.threads, .instructions = instructions_named(fields.at(0))};
    scratch_bytes = number(14);
    packed_bytes = number(15);
  }
  GemmShape shape;
  Target target;
  int64_t scratch_bytes;
  int64_t packed_bytes;
};

/// Operands of bf16 are widened where no instruction multiplies them, and where the tiles of AMX,
/// which take pairs of k, would leave one over.
TEST(GemmPlan, WidensWhatTheInstructionsCannotMultiply) {
  const auto widened = [](MatrixInstructions instructions, DType input, int64_t k) {
    const GemmShape shape{.m = 4, .n = 8, .k = k, .input = input};
    return widens({.instructions = instructions}, shape);
  };
  using enum MatrixInstructions;
  for (const MatrixInstructions wide : {avx2, avx512}) {
    EXPECT_TRUE(widened(wide, DType::bf16, 16));
    EXPECT_TRUE(widened(wide, DType::bf16, 17));
  }
  for (const MatrixInstructions own : {none, avx512_bf16}) {
    EXPECT_FALSE(widened(own, DType::bf16, 16));
    EXPECT_FALSE(widened(own, DType::bf16, 17));
  }
  EXPECT_FALSE(widened(amx, DType::bf16, 16));
  EXPECT_TRUE(widened(amx, DType::bf16, 17));
  for (const MatrixInstructions any : {none, avx2, avx512, avx512_bf16, amx}) {
    EXPECT_FALSE(widened(any, DType::f32, 17));
  }
}

TEST(GemmPlan, HoldsWhatTheLibraryAsksForOnOtherProcessors) {
  std::ifstream file(std::filesystem::path(TESSERA_SOURCE) / "tests/fixtures/gemm" /
                     "onednn_2.6.3.csv");
  std::string line;
  std::getline(file, line);  // the columns' names
  int count = 0;
  while (std::getline(file, line)) {
    const Asked asked(line);
    EXPECT_LE(asked.scratch_bytes, gemm_workspace_bytes(asked.target, asked.shape)) << line;
    EXPECT_LE(asked.packed_bytes, gemm_packed_bytes(asked.target, asked.shape)) << line;
    ++count;
  }
  EXPECT_GT(count, 400);
}

RC_GTEST_PROP(GemmPlan, HoldsWhatTheLibraryAsksForHere, ()) {
  const auto size = [] { return *rc::gen::inRange<int64_t>(1, 700); };
  const auto flag = [] { return *rc::gen::arbitrary<bool>(); };
  GemmShape shape{.m = size(), .n = size(), .k = size()};
  shape.input = flag() ? DType::bf16 : DType::f32;
  shape.output = flag() ? shape.input : DType::f32;
  shape.transpose_a = flag();
  shape.transpose_b = flag();
  shape.accumulate = flag();
  shape.packed_b = flag();
  shape.threads = flag() ? 1 : 2;
  shape.ldb = (shape.transpose_b ? shape.k : shape.n) + (flag() ? 3 : 0);
  Runtime runtime(host_target(2));
  const Gemm& product = prepare_gemm(runtime, shape);
  RC_ASSERT(!product.reduced());
  RC_ASSERT(product.workspace_bytes() <= gemm_workspace_bytes(runtime.target(), shape));
  RC_ASSERT(product.packed_bytes() <= gemm_packed_bytes(runtime.target(), shape));
}

TEST(GemmPlan, NothingForPlainLoopsAndProductsOfNothing) {
  const Target amx{.threads = 8, .instructions = MatrixInstructions::amx};
  Target plain = amx;
  plain.kernels = Kernels::plain;
  const GemmShape shape{.m = 1000, .n = 1000, .k = 1000, .packed_b = true, .threads = 8};
  GemmShape nothing = shape;
  nothing.k = 0;
  GemmShape wide = shape;
  wide.input = wide.output = DType::f64;
  EXPECT_GT(gemm_workspace_bytes(amx, shape), 0);
  EXPECT_GT(gemm_packed_bytes(amx, shape), 0);
  for (const auto& [target, product] :
       {std::pair(plain, shape), std::pair(amx, nothing), std::pair(amx, wide)}) {
    EXPECT_EQ(gemm_workspace_bytes(target, product), 0);
    EXPECT_EQ(gemm_packed_bytes(target, product), 0);
  }
}

TEST(GemmPlan, ProcessorsWithoutProductsOfBFloat16WidenThem) {
  for (const auto& [instructions, native, keeps] :
       {std::tuple(MatrixInstructions::avx2, false, false),
        std::tuple(MatrixInstructions::avx512, false, true),
        std::tuple(MatrixInstructions::avx512_bf16, true, true),
        std::tuple(MatrixInstructions::amx, true, true)}) {
    const Target target{.instructions = instructions};
    EXPECT_EQ(multiplies(target, DType::bf16), native);
    EXPECT_TRUE(multiplies(target, DType::f32));
    EXPECT_EQ(rows_keep_their_bits(target), keeps);
  }
}

RC_GTEST_PROP(SplitGemm, GivesTheWholeProductsResults, ()) {
  const auto flag = [] { return *rc::gen::arbitrary<bool>(); };
  GemmShape shape{.m = *rc::gen::inRange<int64_t>(2, 20), .n = 7, .k = 5};
  shape.input = flag() ? DType::bf16 : DType::f32;
  shape.output = flag() ? shape.input : DType::f32;
  shape.transpose_a = flag();
  shape.accumulate = flag();
  shape.lda = (shape.transpose_a ? shape.m : shape.k) + 2;
  shape.ldb = shape.n;
  shape.ldc = shape.n + 1;
  const Tensor a =
      testing::random_tensor({shape.transpose_a ? shape.k : shape.m, shape.lda}, shape.input, "a");
  const Tensor b = testing::random_tensor({shape.k, shape.n}, shape.input, "b");
  const auto run = [&](const Gemm& product) {
    const Tensor c = testing::random_tensor({shape.m, shape.ldc}, shape.output, "c");
    product.run(a.raw(), b.raw(), c.raw(), nullptr);
    return testing::as_doubles(c);
  };
  const auto cut = make_split_gemm(shape, make_plain_gemm);
  RC_ASSERT(cut->reduced());
  RC_ASSERT(run(*cut) == run(*make_plain_gemm(shape)));
}

}  // namespace
}  // namespace tessera
