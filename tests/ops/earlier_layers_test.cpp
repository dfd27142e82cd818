// The load-balance loss of layers that several programs have.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/moe_program.h"
#include "ops/router/losses.h"
#include "ops/router/router.h"
#include "support/emulated.h"
#include "support/run_program.h"

namespace tessera {
namespace {

constexpr int64_t kExperts = 4;

/// How many sets of tokens a rank has, and the type of the counts.
struct Counts {
  std::optional<int64_t> sets;
  DType dtype = DType::i32;

  Spec spec() const { return {sets ? Shape{*sets, kExperts} : Shape{kExperts}, dtype, {}}; }
};
const std::vector<Counts> kAllCounts{{{}, DType::i32}, {2, DType::i32}, {{}, DType::f64}};

testing::FixedInputs counts_of_layers(const Counts& counts, size_t layers) {
  testing::FixedInputs fixed;
  for (size_t layer = 0; layer < layers; ++layer) {
    const Tensor tensor(counts.spec().shape, counts.dtype);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const int64_t count = (7 * i + 3 * static_cast<int64_t>(layer)) % 5;
      if (counts.dtype == DType::i32) {
        tensor.data<int32_t>()[i] = static_cast<int32_t>(count);
      } else {
        tensor.data<double>()[i] = 1.3 * static_cast<double>(count) + 0.1;
      }
    }
    fixed.emplace("counts" + std::to_string(layer), tensor);
  }
  return fixed;
}

/// Writes the pooled loss of layers that are cut before each index in `cuts`, and what the last
/// part gets of the layers before.
std::vector<Value> cut_loss(Builder& builder, std::span<const Value> probabilities,
                            const Counts& of, const std::vector<size_t>& cuts) {
  std::vector<Value> counts;
  for (size_t layer = 0; layer < probabilities.size(); ++layer) {
    counts.push_back(builder.input("counts" + std::to_string(layer), of.spec()));
  }
  EarlierLayers earlier;
  size_t first = 0;
  for (const size_t cut : cuts) {
    earlier = layers_so_far(builder, probabilities.subspan(first, cut - first),
                            std::span(counts).subspan(first, cut - first), earlier);
    first = cut;
  }
  return {load_balance_loss(builder, probabilities.subspan(first), std::span(counts).subspan(first),
                            0.5, 2, BalanceForm::pooled, earlier)};
}

testing::RunResult run_cut(const Counts& counts, int64_t tokens, DType dtype,
                           const std::vector<size_t>& cuts) {
  return testing::run_program(
      [&](Builder& builder, std::span<const Value> in) {
        return cut_loss(builder, in, counts, cuts);
      },
      std::vector<testing::RunInput>(4, {{tokens, kExperts}}),
      {.dtype = dtype, .fixed = counts_of_layers(counts, 4)});
}

TEST(EarlierLayers, GiveTheBitsOfALossInOneProgram) {
  const std::vector<std::vector<size_t>> all_cuts{{1}, {2}, {3}, {1, 2}, {1, 3}, {1, 2, 3}};
  for (const Counts& counts : kAllCounts) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const int64_t tokens : {6, 700}) {  // in one block of tokens, and in several
        const testing::RunResult whole = run_cut(counts, tokens, dtype, {});
        for (const auto& cuts : all_cuts) {
          EXPECT_TRUE(run_cut(counts, tokens, dtype, cuts) == whole)
              << dtype_name(dtype) << " " << counts.spec().shape.text() << ", " << tokens;
        }
      }
    }
  }
}

TEST(EarlierLayers, GradientsAgreeWithFiniteDifferences) {
  for (const Counts& counts : kAllCounts) {
    testing::check_gradients(
        [&](Builder& builder, std::span<const Value> in) {
          return cut_loss(builder, in, counts, {1, 2});
        },
        std::vector<Shape>(3, Shape{6, kExperts}), [&] { return counts_of_layers(counts, 3); });
  }
}

/// Returns the sum of layers' counts.
template <typename T>
std::vector<T> sum_of(const std::vector<std::vector<T>>& layers, const Shape& shape,
                      const std::optional<testing::Emulation>& emulation = {}) {
  testing::SmallProgram small(1, Kernels::fast, emulation);
  std::vector<Value> counts;
  for (const std::vector<T>& layer : layers) counts.push_back(small.input<T>(shape, layer));
  const Value sum = sum_of_counts(small.builder(), counts);
  small.run({sum});
  return small.read<T>(sum);
}

TEST(SumOfCounts, AddsThemForEachExpertAndSet) {
  EXPECT_EQ((sum_of<int32_t>({{1, 2, 3, 4, 5, 6}, {10, 20, 30, 40, 50, 60}}, {2, 3})),
            (std::vector<int32_t>{11, 22, 33, 44, 55, 66}));
  EXPECT_EQ((sum_of<double>({{0.5, 2}, {0.25, 3}, {0.125, 4}}, {2})),
            (std::vector<double>{0.875, 9}));
  EXPECT_EQ((sum_of<int32_t>({{7, 8}}, {2})), (std::vector<int32_t>{7, 8}));
}

template <typename T>
void expect_the_same_sum_on_devices(size_t experts, T factor) {
  std::vector<std::vector<T>> layers(3);
  std::vector<T> expected(experts);
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (size_t e = 0; e < experts; ++e) {
      layers[layer].push_back(factor * static_cast<T>((e + layer) % 7));
      expected[e] += layers[layer].back();
    }
  }
  testing::expect_device_equals([&](const std::optional<testing::Emulation>& device) {
    const std::vector<T> sum = sum_of(layers, {static_cast<int64_t>(experts)}, device);
    EXPECT_EQ(sum, expected);
    return sum;
  });
}

RC_GTEST_PROP(SumOfCounts, IsTheSameOnEveryDevice, ()) {
  const auto experts = *rc::gen::inRange<size_t>(1, 600);
  expect_the_same_sum_on_devices<int32_t>(experts, 1000003);
  expect_the_same_sum_on_devices<double>(experts, 1.3);
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(EarlierLayers, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const Counts counts{{}, *rc::gen::element(DType::i32, DType::f64)};
  testing::expect_device_agrees(
      [=](Builder& builder, std::span<const Value> in) {
        std::vector<Value> probabilities;
        for (const Value logits : in) probabilities.push_back(router_softmax(builder, logits));
        return cut_loss(builder, probabilities, counts, {1, 3});
      },
      std::vector<testing::RunInput>(4, {{*rc::gen::inRange<int64_t>(1, 200), kExperts}}),
      {.fixed = counts_of_layers(counts, 4)});
}

TEST(EarlierLayers, RefuseWhatDoesNotFit) {
  Program program;
  Builder builder(program);
  const std::vector<Value> p{builder.input("p", {{4, 3}, DType::f32, {}})};
  const std::vector<Value> counts{builder.input("counts", {{3}, DType::i32, {}})};
  const EarlierLayers earlier = layers_so_far(builder, p, counts);
  EXPECT_THROW(load_balance_loss(builder, p, counts, 1, 1, BalanceForm::per_layer, earlier),
               InternalError);
  EarlierLayers of_more_experts = earlier;
  of_more_experts.probability_sums = builder.input("sums", {{5}, DType::f64, {}});
  EXPECT_THROW(load_balance_loss(builder, p, counts, 1, 1, BalanceForm::pooled, of_more_experts),
               InternalError);
  EarlierLayers of_means = earlier;
  of_means.counts = builder.input("means", {{3}, DType::f64, {}});
  EXPECT_THROW(layers_so_far(builder, p, counts, of_means), InternalError);
}

}  // namespace
}  // namespace tessera
