#include <numeric>

#include "base/random.h"
#include "block_benchmark.h"
#include "ops/activation/activation.h"
#include "ops/attention/attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/cross_entropy.h"
#include "ops/moe/gather_tokens.h"
#include "ops/moe/grouped_linear.h"
#include "ops/moe/reduce_experts.h"
#include "ops/moe/routing.h"
#include "ops/norm/norm.h"
#include "ops/rotary/rotary.h"
#include "ops/router/router.h"

namespace tessera {
namespace {

// One layer of a small mixture of experts.
constexpr int64_t kTokens = 4096, kHidden = 1024, kHeads = 8, kHeadSize = 128;
constexpr int64_t kExperts = 64, kChosen = 8, kExpertSize = 512, kVocabulary = 32000;

/// A random tensor whose gradient is computed.
Value given(Builder& builder, const char* name, const Shape& shape, DType dtype) {
  return builder.parameter(name, {shape, dtype, {}});
}

/// A given i32 tensor.
Value integers(BlockProgram& block, Builder& builder, const char* name, const Shape& shape,
               std::vector<int32_t> values) {
  const Value value = builder.input(name, {shape, DType::i32, {}});
  block.integers[value.id] = std::move(values);
  return value;
}

/// Distinct random experts for each token.
std::vector<int32_t> chosen_experts() {
  std::vector<int32_t> chosen;
  for (int64_t token = 0; token < kTokens; ++token) {
    const Permutation experts(kExperts, static_cast<uint64_t>(token));
    for (uint64_t place = 0; place < kChosen; ++place) {
      chosen.push_back(static_cast<int32_t>(experts(place)));
    }
  }
  return chosen;
}

std::vector<Value> write_norm(BlockProgram&, Builder& builder, DType dtype) {
  const Value x = given(builder, "x", {kTokens, kHidden}, dtype);
  const Value weight = given(builder, "weight", {kHidden}, accumulation_dtype(dtype));
  return {norm(builder, x, weight, {}).output};
}

std::vector<Value> write_norm_with_residual(BlockProgram&, Builder& builder, DType dtype) {
  const Value x = given(builder, "x", {kTokens, kHidden}, dtype);
  const Value stream = given(builder, "stream", {kTokens, kHidden}, dtype);
  const Value weight = given(builder, "weight", {kHidden}, accumulation_dtype(dtype));
  const NormResult result = norm(builder, x, weight, {}, stream);
  return {result.output, result.sum};
}

std::vector<Value> write_swiglu(BlockProgram&, Builder& builder, DType dtype) {
  const Value gate = given(builder, "gate", {kTokens * kChosen, kExpertSize}, dtype);
  const Value up = given(builder, "up", {kTokens * kChosen, kExpertSize}, dtype);
  return {gated_activation(builder, gate, up, Activation::silu)};
}

std::vector<Value> write_router(BlockProgram&, Builder& builder, DType dtype) {
  const Value logits = given(builder, "logits", {kTokens, kExperts}, accumulation_dtype(dtype));
  const Value probabilities = router_softmax(builder, logits);
  return {router_top_k(builder, probabilities, {.k = kChosen}).weights};
}

std::vector<Value> write_rotary(BlockProgram& block, Builder& builder, DType dtype) {
  std::vector<int32_t> places(kTokens);
  std::iota(places.begin(), places.end(), 0);
  const Value positions = integers(block, builder, "positions", {kTokens}, std::move(places));
  const Value table = rotary_table(builder, positions, {.channels = kHeadSize, .theta = 10000},
                                   accumulation_dtype(dtype));
  const Value x = given(builder, "x", {kTokens, kHeads * kHeadSize}, dtype);
  return {rotary(builder, x, table, kHeadSize)};
}

std::vector<Value> write_cross_entropy(BlockProgram& block, Builder& builder, DType dtype) {
  constexpr int64_t kRows = 1024;
  const CounterRandom random(1, "targets");
  std::vector<int32_t> numbers;
  for (uint64_t i = 0; i < kRows; ++i) {
    numbers.push_back(static_cast<int32_t>(random.bits(i) % kVocabulary));
  }
  const Value targets = integers(block, builder, "targets", {kRows}, std::move(numbers));
  const Value x = given(builder, "x", {kRows, kHidden}, dtype);
  const Value weight = given(builder, "weight", {kVocabulary, kHidden}, dtype);
  block.deviations[weight.id] = 0.02;
  return {linear_cross_entropy(builder, x, weight, targets).loss};
}

/// Gathering of tokens for their experts and the weighted sum of what comes back, with the counting
/// and indexing before them.
std::vector<Value> write_gather_reduce(BlockProgram& block, Builder& builder, DType dtype) {
  RoutingOptions options;
  options.experts = kExperts;
  options.local_experts = kExperts;
  const Value chosen = integers(block, builder, "chosen", {kTokens, kChosen}, chosen_experts());
  const TokenCounts counts = token_counts(builder, chosen, options);
  const TokenIndices indices = token_indices(builder, chosen, counts, options);
  const Value x = given(builder, "x", {kTokens, kHidden}, dtype);
  const Value weights = given(builder, "weights", {kTokens, kChosen}, accumulation_dtype(dtype));
  return {reduce_experts(builder, gather_tokens(builder, x, indices), weights, indices)};
}

std::vector<Value> write_attention(BlockProgram&, Builder& builder, DType dtype) {
  const Shape shape{kTokens, kHeads * kHeadSize};
  const Spec spec{shape, dtype, {}};
  const AttentionOptions options{
      .sequence = 1024, .heads = kHeads, .kv_heads = kHeads, .head_dim = kHeadSize};
  return {attention(builder, builder.input("q", spec), builder.input("k", spec),
                    builder.input("v", spec), options)};
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

const bool kRegistered = [] {
  register_block("norm", write_norm);
  register_block("norm_with_residual", write_norm_with_residual);
  register_block("swiglu", write_swiglu);
  register_block("router", write_router);
  register_block("rotary", write_rotary);
  register_block("cross_entropy", write_cross_entropy);
  register_block("gather_reduce", write_gather_reduce);
  register_block("attention", write_attention);
  register_block("grouped_linear", write_grouped_linear);
  return true;
}();

}  // namespace
}  // namespace tessera
