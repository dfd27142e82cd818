#include "ops/gemm/tuned_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/gemm/device_gemm.h"
#include "ops/host_target.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TunedProducts, AreFoundByWhatMakesADifferenceToADevice) {
  const GemmShape shape{.m = 8, .n = 16, .k = 32, .transpose_b = true};
  TunedProducts table;
  table.products.push_back({.shape = tuned_shape(shape), .seconds = 1, .heuristic_seconds = 2});
  GemmShape same = shape;
  same.threads = 5;
  same.packed_b = true;
  same.ldb = 32;
  EXPECT_EQ(table.find(same, false), &table.products[0]);
  EXPECT_EQ(table.find(same, true), nullptr);
  for (const auto& change : std::initializer_list<void (*)(GemmShape&)>{
           [](GemmShape& other) { other.m = 9; }, [](GemmShape& other) { other.lda = 40; },
           [](GemmShape& other) { other.transpose_b = false; },
           [](GemmShape& other) { other.accumulate = true; },
           [](GemmShape& other) { other.output = DType::bf16; }}) {
    GemmShape other = shape;
    change(other);
    EXPECT_EQ(table.find(other, false), nullptr);
  }
}

TEST(TunedProducts, AnotherCandidateMustBeFasterThanNoise) {
  const auto fastest = [](std::vector<std::vector<double>> seconds) {
    return fastest_candidate(seconds);
  };
  EXPECT_EQ(fastest({{1.0}}), 0U);
  EXPECT_EQ(fastest({{1.0}, {0.995}}), 0U);
  EXPECT_EQ(fastest({{1.0}, {0.98}, {0.97}, {0.975}}), 2U);
  // Medians count: one lucky sample does not make a candidate the fastest.
  EXPECT_EQ(fastest({{1.0, 1.0, 1.0}, {0.1, 1.2, 1.1}}), 0U);
  EXPECT_EQ(fastest({{1.0, 9.0, 1.0}, {0.9, 0.9, 9.0}}), 1U);
}

TEST(TunedProducts, NeedADeviceWithAlgorithmsToChooseFrom) {
  Runtime host(host_target(1));
  EXPECT_THAT(error_of([&] { device_gemm_library(host); }),
              AllOf(HasSubstr("the device cpu"), HasSubstr("cuda")));
}

TEST(DeviceGemm, AVendorsLibraryGetsTheSameScratchMemoryForAllShapes) {
  Target target;
  target.device = Device::cuda;
  const int64_t bytes = device_gemm_workspace_bytes(target, {.m = 1, .n = 1, .k = 1});
  EXPECT_GE(bytes, int64_t{32} << 20);
  EXPECT_EQ(device_gemm_workspace_bytes(target, {.m = 4096, .n = 50304, .k = 2048}), bytes);
  target.device = Device::hip;
  EXPECT_EQ(device_gemm_workspace_bytes(target, {.m = 64, .n = 64, .k = 64}), bytes);
}

}  // namespace
}  // namespace tessera
