#include <numeric>

#include "benchmarks.h"
#include "block_benchmark.h"
#include "layer_inputs.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"
#include "ops/loss/cross_entropy.h"
#include "ops/moe/grouped_linear.h"

namespace tessera {
namespace {

/// What the three passes of a linear layer from kHidden to kLinear channels have in common.
struct LinearValues {
  Value x;                // [tokens, hidden]
  Value weight;           // [linear, hidden]
  Value output_gradient;  // [tokens, linear]
};

LinearValues linear_values(BlockProgram& block, Builder& builder, DType dtype) {
  constexpr int64_t kLinear = 2048;
  const LinearValues values{builder.state("x", {{kTokens, kHidden}, dtype, {}}),
                            given(builder, "weight", {kLinear, kHidden}, dtype),
                            builder.state("output_gradient", {{kTokens, kLinear}, dtype, {}})};
  block.deviations[values.weight.id] = 0.02;
  return values;
}

std::vector<Value> write_linear(BlockProgram& block, Builder& builder, DType dtype) {
  const LinearValues values = linear_values(block, builder, dtype);
  return {linear(builder, values.x, values.weight)};
}

std::vector<Value> write_input_gradient(BlockProgram& block, Builder& builder, DType dtype) {
  const auto [x, weight, output_gradient] = linear_values(block, builder, dtype);
  return {linear_input_gradient(builder, {&output_gradient, 1}, {&weight, 1}, x)};
}

std::vector<Value> write_weight_gradient(BlockProgram& block, Builder& builder, DType dtype) {
  const auto [x, weight, output_gradient] = linear_values(block, builder, dtype);
  return {linear_weight_gradient(builder, x, output_gradient, weight)};
}

/// The head and the loss with the gradients of both inputs, which the forward pass takes.
std::vector<Value> write_cross_entropy(BlockProgram& block, Builder& builder, DType dtype) {
  constexpr int64_t kRows = 1024;
  const Value targets = integers(block, builder, "targets", {kRows}, random_tokens(kRows));
  const Value x = given(builder, "x", {kRows, kHidden}, dtype);
  const Value weight = given(builder, "weight", {kVocabulary, kHidden}, dtype);
  block.deviations[weight.id] = 0.02;
  const Value seed = builder.state("seed", {{1}, accumulation_dtype(dtype), {}});
  return {linear_cross_entropy_with_gradient(builder, x, weight, targets, seed).loss};
}

std::vector<Value> write_attention(BlockProgram&, Builder& builder, DType dtype) {
  const Shape shape{kTokens, kHeads * kHeadSize};
  const Spec spec{shape, dtype, {}};
  const AttentionOptions options{
      .sequence = 1024, .heads = kHeads, .kv_heads = kHeads, .head_dim = kHeadSize};
  return {attention(builder, builder.state("q", spec), builder.state("k", spec),
                    builder.state("v", spec), options)};
}

/// Gate and up projections with uneven loads.
std::vector<Value> write_grouped_linear(BlockProgram& block, Builder& builder, DType dtype) {
  std::vector<int32_t> offsets(kExperts + 1, 0);
  for (const int32_t expert : chosen_experts()) ++offsets[static_cast<size_t>(expert) + 1];
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  const Value rows = given(builder, "rows", {kTokens * kChosen, kHidden}, dtype);
  const Value starts = integers(block, builder, "offsets", {kExperts + 1}, std::move(offsets));
  const Shape shape{kExperts, kExpertSize, kHidden};
  const Value weights[] = {given(builder, "gate", shape, dtype),
                           given(builder, "up", shape, dtype)};
  for (const Value weight : weights) block.deviations[weight.id] = 0.02;
  return grouped_linear(builder, rows, weights, starts);
}

}  // namespace

void register_products() {
  register_forward("linear/forward", write_linear, Products::needed);
  register_forward("linear/input_gradient", write_input_gradient, Products::needed);
  register_forward("linear/weight_gradient", write_weight_gradient, Products::needed);
  register_forward("cross_entropy/both_passes", write_cross_entropy, Products::needed);
  register_block("attention", write_attention, Products::needed);
  register_block("grouped_linear", write_grouped_linear, Products::needed);
}

}  // namespace tessera
