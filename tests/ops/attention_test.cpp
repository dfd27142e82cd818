#include "ops/attention/attention.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "ops/attention_cases.h"
#include "ops/host_target.h"

namespace tessera::testing {
namespace {

void check_case_gradients(const AttentionCase& test, double scale = 0) {
  SCOPED_TRACE(test.text());
  AttentionOptions options = test.options();
  options.scale = scale;
  const auto function = [&](Builder& builder, std::span<const Value> inputs) {
    std::optional<Value> starts;
    if (test.documents) starts = builder.input("starts", {{test.tokens()}, DType::i32, {}});
    return std::vector<Value>{
        attention(builder, inputs[0], inputs[1], inputs[2], options, {.document_starts = starts})};
  };
  std::vector<int32_t> starts = test.document_starts();
  const auto fixed = [&] {
    FixedInputs inputs;
    if (test.documents) {
      inputs["starts"] = Tensor::wrap(starts.data(), {test.tokens()}, DType::i32);
    }
    return inputs;
  };
  check_gradients(function, {test.query_shape(), test.key_shape(), test.key_shape()}, fixed,
                  {.threads = 1});
}

TEST(Attention, GradientsMatchFiniteDifferences) {
  check_case_gradients({.sequences = 1, .sequence = 1, .head_dim = 3});
  check_case_gradients({.sequences = 2, .sequence = 5, .heads = 2, .kv_heads = 2, .head_dim = 3});
  check_case_gradients({.sequences = 1, .sequence = 6, .heads = 4, .kv_heads = 2, .head_dim = 2});
  check_case_gradients({.sequences = 2, .sequence = 4, .heads = 4, .kv_heads = 1, .head_dim = 3});
}

TEST(Attention, GradientsMatchFiniteDifferencesWithDocuments) {
  check_case_gradients(
      {.sequences = 2, .sequence = 9, .heads = 2, .kv_heads = 1, .head_dim = 3, .documents = true});
}

TEST(Attention, GradientsMatchFiniteDifferencesWithAScale) {
  check_case_gradients({.sequences = 1, .sequence = 5, .heads = 2, .kv_heads = 2, .head_dim = 3},
                       0.25);
}

TEST(Attention, FirstTokenOfADocumentReturnsItsOwnValue) {
  const AttentionCase test{
      .sequences = 2, .sequence = 40, .heads = 2, .kv_heads = 1, .head_dim = 8, .documents = true};
  const auto inputs = attention_inputs(test, DType::f64);
  const auto results = run_attention(test, DType::f64, Kernels::plain, 2, inputs);
  const std::vector<int32_t> starts = test.document_starts();
  int checked = 0;
  for (int64_t token = 0; token < test.tokens(); ++token) {
    if (starts[static_cast<size_t>(token)] != token % test.sequence) continue;
    for (int64_t column = 0; column < 16; ++column) {
      EXPECT_DOUBLE_EQ(results.output[static_cast<size_t>(token * 16 + column)],
                       inputs[2].data<double>()[token * 8 + column % 8]);
    }
    ++checked;
  }
  EXPECT_GT(checked, 2);
}

TEST(Attention, CostCountsTheCausalTriangle) {
  Program program;
  Builder builder(program);
  const Value q = builder.parameter("q", {{24, 4 * 16}, DType::bf16, {}});
  const Value k = builder.parameter("k", {{24, 2 * 16}, DType::bf16, {}});
  const Value v = builder.parameter("v", {{24, 2 * 16}, DType::bf16, {}});
  const Value output =
      attention(builder, q, k, v, {.sequence = 8, .heads = 4, .kv_heads = 2, .head_dim = 16});
  const Seed seed{output, builder.input("gradient", builder.spec(output))};
  differentiate(builder, std::span(&seed, 1));
  const auto cost = [&](std::string_view name) {
    for (const Node& node : program.nodes()) {
      if (node.operation->name() != name) continue;
      return node.operation->cost(program.specs(node.inputs), program.specs(node.outputs));
    }
    return Cost{};
  };
  // 3 sequences of 8 · 9 / 2 pairs in 4 heads of 16, 2 products of 2 operations an element.
  const double forward = 3 * 36 * 4 * 16 * 4;
  EXPECT_EQ(cost("attention").flops, forward);
  // Four products for three gradients, and the scores once more.
  EXPECT_EQ(cost("attention_gradient").flops, 2 * forward);
  EXPECT_EQ(cost("attention_gradient").repeated_flops, forward / 2);
}

TEST(Attention, WorkspaceGrowsAtMostLinearlyWithTheSequence) {
  const auto workspaces = [&](int64_t sequence, DType dtype) {
    Program program;
    Builder builder(program);
    const Value q = builder.parameter("q", {{sequence, 4 * 16}, dtype, {}});
    const Value k = builder.parameter("k", {{sequence, 2 * 16}, dtype, {}});
    const Value v = builder.parameter("v", {{sequence, 2 * 16}, dtype, {}});
    const Value output = attention(
        builder, q, k, v, {.sequence = sequence, .heads = 4, .kv_heads = 2, .head_dim = 16});
    const Seed seed{output, builder.input("gradient", builder.spec(output))};
    differentiate(builder, std::span(&seed, 1));
    std::vector<int64_t> bytes;
    for (const Node& node : program.nodes()) {
      bytes.push_back(node.operation->workspace_bytes(host_target(2), program.specs(node.inputs)));
    }
    return bytes;
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const auto once = workspaces(2048, dtype);
    const auto twice = workspaces(4096, dtype);
    ASSERT_EQ(once.size(), twice.size());
    for (size_t i = 0; i < once.size(); ++i) EXPECT_LE(twice[i], 2 * once[i]);
    EXPECT_LT(twice[0], 4096 * 4096);
  }
}

class AttentionErrors : public ::testing::Test {
 protected:
  Value build(const AttentionOptions& options, Shape q, Shape k, Shape v,
              std::optional<Spec> starts = std::nullopt) {
    std::optional<Value> start_value;
    if (starts) start_value = builder_.input("starts", *starts);
    return attention(builder_, builder_.input("q", {q, DType::f32, {}}),
                     builder_.input("k", {k, DType::f32, {}}),
                     builder_.input("v", {v, DType::f32, {}}), options,
                     {.document_starts = start_value});
  }
  Program program_;
  Builder builder_{program_};
};

TEST_F(AttentionErrors, ShapesThatDoNotFit) {
  const AttentionOptions options{.sequence = 4, .heads = 4, .kv_heads = 2, .head_dim = 8};
  EXPECT_NO_THROW(build(options, {8, 32}, {8, 16}, {8, 16}));
  EXPECT_THROW(build(options, {8, 24}, {8, 16}, {8, 16}), InternalError);
  EXPECT_THROW(build(options, {8, 32}, {8, 32}, {8, 16}), InternalError);
  EXPECT_THROW(build(options, {8, 32}, {8, 16}, {4, 16}), InternalError);
  EXPECT_THROW(build(options, {6, 32}, {6, 16}, {6, 16}), InternalError);
  AttentionOptions three = options;
  three.kv_heads = 3;
  EXPECT_THROW(build(three, {8, 32}, {8, 24}, {8, 24}), InternalError);
}

TEST_F(AttentionErrors, DocumentStartsThatDoNotFit) {
  const AttentionOptions options{.sequence = 4, .heads = 2, .kv_heads = 2, .head_dim = 8};
  const Spec starts{{8}, DType::i32, {}};
  EXPECT_NO_THROW(build(options, {8, 16}, {8, 16}, {8, 16}, starts));
  EXPECT_THROW(build(options, {8, 16}, {8, 16}, {8, 16}, Spec{{4}, DType::i32, {}}), InternalError);
}

TEST_F(AttentionErrors, ADocumentThatStartsAfterItsToken) {
  const AttentionOptions options{.sequence = 2, .heads = 1, .kv_heads = 1, .head_dim = 2};
  const Value output = build(options, {2, 2}, {2, 2}, {2, 2}, Spec{{2}, DType::i32, {}});
  builder_.output(output);
  Runtime runtime(host_target(1));
  ProgramRun frame(program_, runtime);
  for (const char* name : {"q", "k", "v"}) {
    frame.bind(program_.find(name), random_tensor({2, 2}, DType::f32, name));
  }
  std::vector<int32_t> starts{1, 0};
  frame.bind(program_.find("starts"), Tensor::wrap(starts.data(), {2}, DType::i32));
  EXPECT_THAT([&] { frame.forward(); },
              ::testing::ThrowsMessage<InternalError>(::testing::HasSubstr(
                  "token 0 of its sequence is in a document that starts at 1")));
}

}  // namespace
}  // namespace tessera::testing
