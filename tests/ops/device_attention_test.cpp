#include "ops/attention/device_attention.h"

#include <gtest/gtest.h>

#include "ops/attention/cudnn/kind.h"
#include "ops/attention_cases.h"
#include "support/error_of.h"
#include "support/tested_devices.h"

namespace tessera::testing {
namespace {

/// The lengths of rows of `width` numbers.
std::vector<double> row_lengths(const std::vector<double>& numbers, int64_t width) {
  std::vector<double> lengths(numbers.size() / static_cast<size_t>(width));
  for (size_t i = 0; i < numbers.size(); ++i) {
    lengths[i / static_cast<size_t>(width)] += numbers[i] * numbers[i];
  }
  for (double& length : lengths) length = std::sqrt(length);
  return lengths;
}

/// Compares the vectors of all tokens and heads. Rows of many keys are short, and a key too much in
/// them would be lost in a bound by the longest row: so the bound goes with the row's own length. A
/// gradient may be a difference of equal terms; their rounding is left a quarter of the longest
/// row.
void expect_rows_close(const std::vector<double>& found, const std::vector<double>& expected,
                       int64_t width, double tolerance, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  std::vector<double> difference;
  for (size_t i = 0; i < found.size(); ++i) difference.push_back(found[i] - expected[i]);
  const std::vector<double> errors = row_lengths(difference, width);
  const std::vector<double> lengths = row_lengths(expected, width);
  const double longest = largest_entry(lengths);
  for (size_t row = 0; row < errors.size(); ++row) {
    ASSERT_LE(errors[row], tolerance * (lengths[row] + 0.25 * longest)) << what << ", row " << row;
  }
}

/// The plain kernels in f64 on the same inputs.
AttentionResults definition(const AttentionCase& test, std::span<const Tensor> inputs) {
  std::vector<Tensor> wide;
  for (const Tensor& input : inputs) {
    wide.emplace_back(input.shape(), DType::f64);
    convert(input, wide.back());
  }
  return run_attention(test, DType::f64, Kernels::plain, 2, wide);
}

void expect_agrees(const AttentionResults& found, const AttentionResults& expected,
                   const AttentionCase& test, DType dtype) {
  const bool narrow = dtype == DType::bf16;
  // The scores are f32 sums of exact products; probabilities and their gradients are rounded to the
  // type before the next product, and each result is rounded.
  expect_within(found.log_sum_exp, expected.log_sum_exp, narrow ? 1e-3 : 1e-5, "log-sum-exp");
  const double tolerance = narrow ? 4 * kBFloat16Rounding : 1e-5;
  expect_rows_close(found.output, expected.output, test.head_dim, tolerance, "output");
  expect_rows_close(found.q_gradient, expected.q_gradient, test.head_dim, tolerance,
                    "gradient of q");
  expect_rows_close(found.k_gradient, expected.k_gradient, test.head_dim, tolerance,
                    "gradient of k");
  expect_rows_close(found.v_gradient, expected.v_gradient, test.head_dim, tolerance,
                    "gradient of v");
}

/// Cases that no tile of a kernel divides; larger ones where a GPU computes them.
std::vector<AttentionCase> device_cases() {
  std::vector<AttentionCase> cases{
      {.sequences = 2, .sequence = 70, .heads = 4, .kv_heads = 2, .head_dim = 64},
      {.sequence = 131, .heads = 4, .kv_heads = 1, .head_dim = 128, .documents = true},
      {.sequences = 3,
       .sequence = 33,
       .heads = 2,
       .kv_heads = 2,
       .head_dim = 64,
       .documents = true},
      {.sequence = 128, .heads = 2, .kv_heads = 1, .head_dim = 128}};
  if (!devices_under_test().real) return cases;
  cases.insert(cases.end(),
               {{.sequence = 1100, .heads = 4, .kv_heads = 2, .head_dim = 128, .documents = true},
                {.sequence = 1001, .heads = 4, .kv_heads = 4, .head_dim = 64},
                {.sequences = 4,
                 .sequence = 520,
                 .heads = 8,
                 .kv_heads = 2,
                 .head_dim = 64,
                 .documents = true},
                {.sequences = 2, .sequence = 384, .heads = 8, .kv_heads = 1, .head_dim = 128},
                {.sequences = 2,
                 .sequence = 2100,
                 .heads = 4,
                 .kv_heads = 4,
                 .head_dim = 64,
                 .documents = true},
                {.sequence = 700, .heads = 6, .kv_heads = 2, .head_dim = 40, .documents = true},
                {.sequence = 1536, .heads = 4, .kv_heads = 1, .head_dim = 80, .documents = true}});
  return cases;
}

/// The operation, whichever kernels a device has for it: cuDNN's in bf16 on a GPU of NVIDIA.
TEST(AttentionOnADevice, AgreesWithTheDefinition) {
  for (AttentionCase test : device_cases()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<Tensor> inputs = attention_inputs(test, dtype);
      const AttentionResults expected = definition(test, inputs);
      SCOPED_TRACE(test.text() + " in " + std::string(dtype_name(dtype)));
      const auto run = [&](const Emulation& device) {
        return run_attention(test, dtype, Kernels::fast, 1, inputs, device);
      };
      const auto agrees = [&](const AttentionResults& found) {
        expect_agrees(found, expected, test, dtype);
      };
      test.deterministic = true;
      expect_equal_bits_on_devices(32, run, agrees);
      test.deterministic = false;  // bits may differ from run to run
      for (const Emulation& device : every_device()) {
        SCOPED_TRACE(describe(device) + ", not deterministic");
        agrees(run(device));
      }
      if (HasFatalFailure()) return;
    }
  }
}

Target target_on(Device device, bool deterministic = true) {
  Target target = host_target(1);
  target.device = device;
  target.deterministic = deterministic;
  return target;
}

DeviceAttention attention_of(const AttentionCase& test, DType dtype, bool backward) {
  return {attention_shape(test.options(), test.tokens(), test.sequence), dtype, backward};
}

TEST(AttentionOnADevice, IsRefusedWhereItIsNotToBeHad) {
  const AttentionCase test{.sequence = 64, .heads = 4, .kv_heads = 4, .head_dim = 20};
  const auto failure = [&](Device device, DType dtype, const AttentionCase& of) {
    return error_of(
        [&] { device_attention_workspace(target_on(device), attention_of(of, dtype, false)); });
  };
  EXPECT_NE(failure(Device::cuda, DType::bf16, test)
                .find("a multiple of 8 channels up to 256, not of 20"),
            std::string::npos);
  // Planned, so that a step can be explained for the device; its run is refused.
  EXPECT_GT(
      device_attention_workspace(target_on(Device::hip), attention_of(test, DType::bf16, false)),
      0);
  EXPECT_NE(failure(Device::cuda, DType::f32, {.sequence = 8, .head_dim = 264})
                .find("up to 256 channels, not of 264"),
            std::string::npos);
}

TEST(AttentionOnADevice, PlansTheWorkspaceOfTheDeterministicGradient) {
  // The gradients of 16 heads' scores, 2 bytes each, and delta; otherwise f32 sums of dQ. Beside
  // what cuDNN 9.19 takes there is room for what another version takes.
  const AttentionCase test{
      .sequences = 2, .sequence = 4096, .heads = 16, .kv_heads = 16, .head_dim = 128};
  const DeviceAttention backward = attention_of(test, DType::bf16, true);
  const int64_t scores = int64_t{2} * 16 * 4096 * 4096;
  const int64_t rows = int64_t{2} * 16 * 4096;
  EXPECT_EQ(device_attention_workspace(target_on(Device::cuda), backward),
            2 * scores + 2 * scores / 32 + kCudnnRoom + 4 * rows + 3 * 256);
  EXPECT_EQ(device_attention_workspace(target_on(Device::cuda, false), backward),
            4 * rows * 128 + kCudnnRoom + 4 * rows + 3 * 256);
}

TEST(AttentionOnADevice, PacksDocumentsUnlessTheRunIsDeterministic) {
  const auto documents = [](const CudnnAttentionKind& kind, bool deterministic) {
    return cudnn_documents(kind, deterministic);
  };
  CudnnAttentionKind kind{
      .sequences = 2, .sequence = 4096, .heads = 16, .kv_heads = 4, .head_dim = 128};
  EXPECT_EQ(documents(kind, true), CudnnDocuments::mask);
  EXPECT_EQ(documents(kind, false), CudnnDocuments::packed);
  kind.sequence = 512;  // one group
  EXPECT_EQ(documents(kind, false), CudnnDocuments::mask);
  kind.sequence = 513;
  EXPECT_EQ(documents(kind, false), CudnnDocuments::packed);
  kind.head_dim = 72;  // cuDNN's packed gradient is right for multiples of 16
  EXPECT_EQ(documents(kind, false), CudnnDocuments::mask);
  kind = {.sequences = 128, .sequence = 8192, .heads = 16, .kv_heads = 4, .head_dim = 128};
  EXPECT_EQ(documents(kind, false), CudnnDocuments::mask);  // 2^31 elements
  kind.sequences = 127;
  EXPECT_EQ(documents(kind, false), CudnnDocuments::packed);
}

TEST(AttentionOnADevice, PlansTheWorkspaceOfPackedDocuments) {
  const AttentionCase test{
      .sequences = 2, .sequence = 4096, .heads = 16, .kv_heads = 4, .head_dim = 128};
  const int64_t rows = int64_t{2} * 4096 * 16;
  const int32_t somewhere = 0;
  const auto planned = [&](bool backward, bool deterministic) {
    DeviceAttention attention = attention_of(test, DType::bf16, backward);
    attention.positions.document_starts = &somewhere;
    return device_attention_workspace(target_on(Device::cuda, deterministic), attention);
  };
  // Starts of documents for 8 groups of each sequence, and a log-sum-exp for each row.
  const int64_t packing = int64_t{16} * 4096 * 4 + 4 * rows;
  constexpr int64_t kLittle = kCudnnRoom + (1 << 16);
  EXPECT_GE(planned(false, false), packing);
  EXPECT_LE(planned(false, false), packing + kLittle);
  // Besides: delta, the f32 sums of dQ, and the gradients of keys and values of each query head.
  const int64_t backward = packing + 4 * rows + 3 * 4 * rows * 128;
  EXPECT_GE(planned(true, false), backward);
  EXPECT_LE(planned(true, false), backward + kLittle);
  EXPECT_LE(planned(false, true), kLittle);
}

}  // namespace
}  // namespace tessera::testing
