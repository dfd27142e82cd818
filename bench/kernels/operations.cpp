#include <numeric>

#include "benchmarks.h"
#include "block_benchmark.h"
#include "layer_inputs.h"
#include "ops/activation/activation.h"
#include "ops/cca/delay.h"
#include "ops/cca/depthwise.h"
#include "ops/cca/grouped_convolution.h"
#include "ops/cca/mean_skip.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/moe/routing.h"
#include "ops/moe/token_rows.h"
#include "ops/norm/norm.h"
#include "ops/norm/scaled_residual.h"
#include "ops/rotary/rotary.h"
#include "ops/router/router.h"

namespace tessera {
namespace {

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

std::vector<Value> write_scaled_residual(BlockProgram&, Builder& builder, DType dtype) {
  const Shape rows{kTokens, kHidden};
  const DType wide = accumulation_dtype(dtype);
  const auto vector = [&](const char* name) { return given(builder, name, {kHidden}, wide); };
  const ResidualScale x_scaling{vector("x_scale"), vector("x_bias")};
  const ResidualScale stream_scaling{vector("stream_scale"), vector("stream_bias")};
  const ScaledResidual result = scaled_residual_norm(
      builder, given(builder, "x", rows, dtype), x_scaling, given(builder, "stream", rows, wide),
      stream_scaling, vector("weight"), {});
  return {result.output, result.stream};
}

std::vector<Value> write_swiglu(BlockProgram&, Builder& builder, DType dtype) {
  const Value gate = given(builder, "gate", {kTokens * kChosen, kExpertSize}, dtype);
  const Value up = given(builder, "up", {kTokens * kChosen, kExpertSize}, dtype);
  return {gated_activation(builder, gate, up, Activation::silu)};
}

std::vector<Value> write_add(BlockProgram&, Builder& builder, DType dtype) {
  const Shape shape{kTokens, kHidden};
  const Value addends[] = {given(builder, "x", shape, dtype), given(builder, "y", shape, dtype)};
  return {add(builder, addends, dtype)};
}

/// From the type to f32; from f32 to bf16.
std::vector<Value> write_cast(BlockProgram&, Builder& builder, DType dtype) {
  const DType other = dtype == DType::f32 ? DType::bf16 : DType::f32;
  return {cast(builder, given(builder, "x", {kTokens, kHidden}, dtype), other)};
}

std::vector<Value> write_embedding(BlockProgram& block, Builder& builder, DType dtype) {
  const Value ids = integers(block, builder, "ids", {kTokens}, random_tokens(kTokens));
  return {embedding(builder, given(builder, "table", {kVocabulary, kHidden}, dtype), ids)};
}

std::vector<Value> write_router(BlockProgram&, Builder& builder, DType dtype) {
  const Value logits = given(builder, "logits", {kTokens, kExperts}, accumulation_dtype(dtype));
  const Value probabilities = router_softmax(builder, logits);
  return {router_top_k(builder, probabilities, {.k = kChosen}).weights};
}

std::vector<Value> write_rotary(BlockProgram& block, Builder& builder, DType dtype) {
  std::vector<int32_t> values(kTokens);
  std::iota(values.begin(), values.end(), 0);
  const Value positions = integers(block, builder, "positions", {kTokens}, std::move(values));
  const Value table = rotary_table(builder, positions, {.channels = kHeadSize, .theta = 10000},
                                   accumulation_dtype(dtype));
  const Value x = given(builder, "x", {kTokens, kHeads * kHeadSize}, dtype);
  return {rotary(builder, x, table, kHeadSize)};
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

constexpr int64_t kKeyHeads = 2;  // of compressed convolutional attention

std::vector<Value> write_depthwise_taps(BlockProgram&, Builder& builder, DType dtype) {
  const int64_t channels = kHeads * kHeadSize;
  const DType wide = accumulation_dtype(dtype);
  return {depthwise_taps(builder, given(builder, "x", {kTokens, channels}, dtype),
                         given(builder, "weight", {channels, 2}, wide),
                         given(builder, "bias", {channels}, wide), {.sequence = kTokens})};
}

std::vector<Value> write_grouped_convolution(BlockProgram&, Builder& builder, DType dtype) {
  const int64_t channels = kHeads * kHeadSize;
  return {grouped_convolution(builder, given(builder, "taps", {kTokens, 2 * channels}, dtype),
                              given(builder, "weight", {channels, kHeadSize, 2}, dtype), kHeads)};
}

std::vector<Value> write_mean_skip(BlockProgram&, Builder& builder, DType dtype) {
  const int64_t queries = kHeads * kHeadSize, keys = kKeyHeads * kHeadSize;
  const DType wide = accumulation_dtype(dtype);
  const QueryAndKey result = mean_skip_norm(
      builder,
      {given(builder, "projected_query", {kTokens, queries}, dtype),
       given(builder, "projected_key", {kTokens, keys}, dtype)},
      {given(builder, "convolved_query", {kTokens, queries}, dtype),
       given(builder, "convolved_key", {kTokens, keys}, dtype)},
      {given(builder, "query_bias", {queries}, wide), given(builder, "key_bias", {keys}, wide)},
      given(builder, "temperature", {kKeyHeads}, wide), {.head_dim = kHeadSize});
  return {result.query, result.key};
}

std::vector<Value> write_join_delayed(BlockProgram&, Builder& builder, DType dtype) {
  const Shape half{kTokens, kKeyHeads * kHeadSize / 2};
  return {join_delayed(builder, given(builder, "current", half, dtype),
                       given(builder, "delayed", half, dtype), {.sequence = kTokens})};
}

}  // namespace

void register_operations() {
  register_block("norm", write_norm, Products::none);
  register_block("norm_with_residual", write_norm_with_residual, Products::none);
  register_block("scaled_residual", write_scaled_residual, Products::none);
  register_block("swiglu", write_swiglu, Products::none);
  register_block("add", write_add, Products::none);
  register_block("cast", write_cast, Products::none);
  register_block("embedding", write_embedding, Products::none);
  register_block("router", write_router, Products::none);
  register_block("rotary", write_rotary, Products::none);
  register_block("gather_reduce", write_gather_reduce, Products::none);
  register_block("depthwise_taps", write_depthwise_taps, Products::none);
  register_block("grouped_convolution", write_grouped_convolution, Products::needed);
  register_block("mean_skip", write_mean_skip, Products::none);
  register_block("join_delayed", write_join_delayed, Products::none);
}

}  // namespace tessera
