#include "ops/moe/device_grouped.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/round_up.h"
#include "ops/moe/grouped_layout.h"
#include "ops/moe/grouped_linear_plain.h"
#include "support/emulated.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What a GroupTable's lists hold, read back from the device.
struct ReadTable {
  std::vector<int32_t> sizes;
  std::vector<std::vector<const void*>> addresses;
  std::vector<std::vector<int64_t>> strides;
  std::vector<float> factors;
};

/// Addresses count from the first group's: where an operand lies is another place in each process.
testing::Bits bits_of(const ReadTable& table) {
  std::vector<std::vector<int64_t>> distances;
  for (const std::vector<const void*>& list : table.addresses) {
    distances.emplace_back();
    for (const void* const address : list) {
      distances.back().push_back(static_cast<const std::byte*>(address) -
                                 static_cast<const std::byte*>(list.front()));
    }
  }
  return testing::bits_of(table.sizes, table.strides, table.factors, distances);
}

template <typename T>
std::vector<T> read_list(Accelerator& accelerator, const void* from, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  accelerator.readback(from, std::as_writable_bytes(std::span(values)));
  return values;
}

/// Writes a product's table on a device. The operands may lie anywhere: only their addresses count.
/// The sizes are read in CUTLASS's form.
ReadTable written_table(const GroupedShape& shape, GroupedOperands operands,
                        const std::vector<int32_t>& offsets, const testing::Emulation& device,
                        GroupedLibrary library = GroupedLibrary::cutlass) {
  Runtime runtime = testing::make_runtime(host_target(1), device);
  Accelerator& accelerator = *runtime.accelerator();
  const GroupedAreas areas(shape.groups);
  const auto memory = accelerator.allocate(areas.bytes());
  const auto bytes = std::as_bytes(std::span(offsets));
  const auto on_device = accelerator.allocate(static_cast<int64_t>(bytes.size()));
  accelerator.upload(bytes, on_device->address());
  operands.offsets = static_cast<const int32_t*>(on_device->address());
  auto* const workspace = static_cast<std::byte*>(memory->address());
  const GroupTable table = areas.table(library, shape, operands, workspace);
  EXPECT_LE(areas.library_memory(workspace) + areas.library_bytes(), workspace + areas.bytes());

  const auto stream = accelerator.make_stream();
  for_vendor(*stream,
             [&](auto vendor) { write_group_table_device<decltype(vendor)>(table, *stream); });
  stream->synchronize();
  ReadTable read{.sizes = read_list<int32_t>(accelerator, table.sizes, 3 * shape.groups),
                 .addresses = {},
                 .strides = {},
                 .factors = read_list<float>(accelerator, table.factors, 2)};
  for (int i = 0; i < kGroupedOperands; ++i) {
    read.addresses.push_back(read_list<const void*>(accelerator, table.addresses[i], shape.groups));
    read.strides.push_back(read_list<int64_t>(accelerator, table.strides[i], shape.groups));
  }
  return read;
}

float element(DType dtype, const void* base, int64_t at) {
  return dtype == DType::bf16 ? static_cast<float>(static_cast<const BFloat16*>(base)[at])
                              : static_cast<const float*>(base)[at];
}

/// The products as the library's kernels make them of a table (see cutlass_grouped.h), in plain
/// loops.
void library_products(const GroupedShape& shape, const ReadTable& table) {
  ASSERT_EQ(table.factors[0], 1.0f);
  const bool adds = table.factors[1] == 1.0f;
  const bool a_by_columns = shape.kind == GroupedKind::weight_gradient;
  const bool b_by_columns = shape.kind == GroupedKind::forward;
  for (size_t group = 0; group < static_cast<size_t>(shape.groups); ++group) {
    const int32_t* const size = &table.sizes[3 * group];
    const auto at = [&](int operand, int64_t row, int64_t column) {
      return row * table.strides[static_cast<size_t>(operand)][group] + column;
    };
    for (int64_t m = 0; m < size[0]; ++m) {
      for (int64_t n = 0; n < size[1]; ++n) {
        float sum = adds ? static_cast<const float*>(table.addresses[2][group])[at(2, m, n)] : 0.0f;
        for (int64_t k = 0; k < size[2]; ++k) {
          sum += element(shape.input, table.addresses[0][group],
                         a_by_columns ? at(0, k, m) : at(0, m, k)) *
                 element(shape.input, table.addresses[1][group],
                         b_by_columns ? at(1, n, k) : at(1, k, n));
        }
        void* const d = const_cast<void*>(table.addresses[3][group]);
        if (shape.output == DType::bf16) {
          static_cast<BFloat16*>(d)[at(3, m, n)] = static_cast<BFloat16>(sum);
        } else {
          static_cast<float*>(d)[at(3, m, n)] = sum;
        }
      }
    }
  }
}

struct GroupedSizes {
  std::vector<int32_t> offsets{0};
  int64_t in = 0;
  int64_t out = 0;

  GroupedShape shape(GroupedKind kind) const {
    return {.kind = kind,
            .groups = static_cast<int64_t>(offsets.size()) - 1,
            .rows = offsets.back() + 3,
            .in = in,
            .out = out,
            .input = DType::bf16,
            .output = kind == GroupedKind::weight_gradient ? DType::f32 : DType::bf16};
  }
  Tensor offsets_tensor() const {
    Tensor tensor({static_cast<int64_t>(offsets.size())}, DType::i32);
    std::copy(offsets.begin(), offsets.end(), tensor.data<int32_t>());
    return tensor;
  }
};

GroupedSizes random_sizes() {
  GroupedSizes sizes;
  const auto groups = *rc::gen::inRange(1, 150);
  for (int i = 0; i < groups; ++i) {
    sizes.offsets.push_back(sizes.offsets.back() + *rc::gen::element(0, 0, 1, 2, 5));
  }
  sizes.in = *rc::gen::inRange<int64_t>(1, 6);
  sizes.out = *rc::gen::inRange<int64_t>(1, 6);
  return sizes;
}

void expect_equal(const Tensor& actual, const Tensor& expected, int64_t count) {
  const auto a = testing::as_doubles(actual), e = testing::as_doubles(expected);
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_NEAR(a[static_cast<size_t>(i)], e[static_cast<size_t>(i)],
                1e-5 + 2 * testing::kBFloat16Rounding * std::abs(e[static_cast<size_t>(i)]))
        << "element " << i;
  }
}

RC_GTEST_PROP(DeviceGrouped, ATablesProductsAreThoseOfTheLinearMap, ()) {
  const GroupedSizes sizes = random_sizes();
  const auto kind = *rc::gen::element(GroupedKind::forward, GroupedKind::input_gradient,
                                      GroupedKind::weight_gradient);
  const GroupedShape shape = sizes.shape(kind);
  const Tensor x = testing::random_tensor({shape.rows, shape.in}, DType::bf16, "x");
  const Tensor y = testing::random_tensor({shape.rows, shape.out}, DType::bf16, "y");
  const Tensor weight =
      testing::random_tensor({shape.groups, shape.out, shape.in}, DType::bf16, "w");
  const Tensor before = testing::random_tensor(weight.shape(), DType::f32, "gradient");
  const Tensor wide(weight.shape(), DType::f32);
  const Tensor expected_wide = testing::random_tensor(weight.shape(), DType::f32, "gradient");
  const Tensor result(kind == GroupedKind::forward ? y.shape() : x.shape(), DType::bf16);
  const Tensor expected(result.shape(), DType::bf16);
  Runtime host(host_target(1));
  const Tensor offsets = sizes.offsets_tensor();
  GroupedOperands operands;
  if (kind == GroupedKind::forward) {
    grouped_linear_plain<BFloat16>(host, x, weight, offsets, expected);
    operands = {.rows = x.address(), .second = weight.address(), .result = result.address()};
  } else if (kind == GroupedKind::input_gradient) {
    const Tensor gradients[] = {y}, weights[] = {weight};
    grouped_linear_input_gradient_plain<BFloat16>(host, gradients, weights, offsets, expected);
    operands = {.rows = y.address(), .second = weight.address(), .result = result.address()};
  } else {
    grouped_linear_weight_gradient_plain<BFloat16>(host, x, y, offsets, expected_wide);
    operands = {.rows = y.address(), .second = x.address(), .result = wide.address()};
  }
  testing::expect_equal_bits_on_devices(
      testing::any_lanes(),
      [&](const testing::Emulation& device) {
        return written_table(shape, operands, sizes.offsets, device);
      },
      [&](const ReadTable& table) {
        if (kind == GroupedKind::weight_gradient) {
          wide.copy_from(before);
          library_products(shape, table);
          expect_equal(wide, expected_wide, wide.elements());
        } else {
          library_products(shape, table);
          expect_equal(result, expected, sizes.offsets.back() * result.shape()[1]);
        }
      });
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(DeviceGrouped, AnInputGradientIsAddedToASumBeforeItIsRounded) {
  const GroupedSizes sizes{.offsets = {0, 2, 2, 5}, .in = 4, .out = 3};
  GroupedShape shape = sizes.shape(GroupedKind::input_gradient);
  shape.adds = true;
  const Tensor y = testing::random_tensor({shape.rows, 3}, DType::bf16, "y");
  const Tensor weight = testing::random_tensor({3, 3, 4}, DType::bf16, "w");
  const Tensor sum = testing::random_tensor({shape.rows, 4}, DType::f32, "sum");
  const Tensor result({shape.rows, 4}, DType::bf16), without({shape.rows, 4}, DType::f32);
  const GroupedOperands operands{.rows = y.address(),
                                 .second = weight.address(),
                                 .result = result.address(),
                                 .sum = sum.data<float>()};
  GroupedShape wide = shape;
  wide.output = DType::f32;
  wide.adds = false;
  GroupedOperands alone = operands;
  alone.result = without.address();
  for (const testing::Emulation& device : testing::every_device()) {
    SCOPED_TRACE(describe(device));
    library_products(shape, written_table(shape, operands, sizes.offsets, device));
    library_products(wide, written_table(wide, alone, sizes.offsets, device));
    for (int64_t i = 0; i < 5 * 4; ++i) {
      const BFloat16 expected(sum.data<float>()[i] + without.data<float>()[i]);
      EXPECT_NEAR(static_cast<float>(result.data<BFloat16>()[i]), static_cast<float>(expected),
                  testing::kBFloat16Rounding * std::abs(static_cast<float>(expected)) + 1e-6);
    }
  }
}

TEST(DeviceGrouped, GroupsWithoutRowsHaveNoTiles) {
  const GroupedSizes sizes{.offsets = {0, 0, 4, 4}, .in = 8, .out = 16};
  for (const testing::Emulation& device : testing::every_device()) {
    SCOPED_TRACE(describe(device));
    const auto sizes_of = [&](GroupedKind kind) {
      return written_table(sizes.shape(kind), {}, sizes.offsets, device).sizes;
    };
    EXPECT_EQ(sizes_of(GroupedKind::forward), (std::vector<int32_t>{0, 16, 8, 4, 16, 8, 0, 16, 8}));
    EXPECT_EQ(sizes_of(GroupedKind::input_gradient),
              (std::vector<int32_t>{0, 8, 16, 4, 8, 16, 0, 8, 16}));
    EXPECT_EQ(sizes_of(GroupedKind::weight_gradient),
              (std::vector<int32_t>{0, 8, 0, 16, 8, 4, 0, 8, 0}));
  }
}

RC_GTEST_PROP(DeviceGrouped, BothLibrariesReadTheSameTableInTheirForms, ()) {
  const GroupedSizes sizes = random_sizes();
  const GroupedShape shape = sizes.shape(*rc::gen::element(
      GroupedKind::forward, GroupedKind::input_gradient, GroupedKind::weight_gradient));
  const auto table_for = [&](GroupedLibrary library) {
    return written_table(shape, {}, sizes.offsets, {}, library);
  };
  const ReadTable by_groups = table_for(GroupedLibrary::cutlass);
  const ReadTable by_sizes = table_for(GroupedLibrary::cublaslt);
  const auto groups = static_cast<size_t>(shape.groups);
  for (size_t i = 0; i < 3 * groups; ++i) {
    RC_ASSERT(by_groups.sizes[i] == by_sizes.sizes[i % 3 * groups + i / 3]);
  }
  RC_ASSERT(by_groups.strides == by_sizes.strides);
  RC_ASSERT(by_groups.factors == by_sizes.factors);
}

TEST(DeviceGrouped, TheLowerMedianDecidesBetweenTheLibraries) {
  const GroupedShape shape{.groups = 2};
  EXPECT_EQ(faster_library(shape, {3, 1, 2}, {4, 4, 0.1}).library, GroupedLibrary::cutlass);
  EXPECT_EQ(faster_library(shape, {3, 1, 2}, {1.9, 9, 1.9}).library, GroupedLibrary::cublaslt);
  EXPECT_EQ(faster_library(shape, {2}, {2}).library, GroupedLibrary::cutlass);
  EXPECT_EQ(faster_library(shape, {}, {2}).library, GroupedLibrary::cublaslt);
  const TunedGrouped alone = faster_library(shape, {5}, {});
  EXPECT_EQ(alone.library, GroupedLibrary::cutlass);
  EXPECT_EQ(alone.cublaslt_seconds, 0);
}

TEST(DeviceGrouped, WhatTheDeviceCannotMultiplyIsRefusedByThePlan) {
  Target cuda;
  cuda.device = Device::cuda;
  GroupedShape shape{.groups = 4, .rows = 9, .in = 64, .out = 24, .input = DType::bf16};
  EXPECT_GT(device_grouped_workspace_bytes(cuda, "grouped_linear", shape), 0);
  shape.out = 20;
  EXPECT_THAT(error_of([&] { device_grouped_workspace_bytes(cuda, "grouped_linear", shape); }),
              AllOf(HasSubstr("grouped_linear"), HasSubstr("[20, 64]"), HasSubstr("multiples of 8"),
                    HasSubstr("model.expert_size")));
  shape.input = DType::f32;
  EXPECT_EQ(device_grouped_workspace_bytes(cuda, "grouped_linear", shape), 0);
}

TEST(RealDevice, IsTestedWhereThereIsOne) {
  // Throws where TESSERA_TEST_DEVICES names a device that is not there.
  const testing::DevicesUnderTest& devices = testing::devices_under_test();
  if (!devices.real) GTEST_SKIP() << devices.missing;
  SUCCEED();
}

}  // namespace
}  // namespace tessera
