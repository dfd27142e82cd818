// Compressed convolutional attention over the ranks of a mesh.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "ops/cca/delay.h"
#include "ops/cca/depthwise.h"
#include "ops/cca/grouped_convolution.h"
#include "ops/cca/mean_skip.h"
#include "ops/cca_cases.h"
#include "ops/rank_results.h"
#include "support/refusal_of.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::PackedSequences;

constexpr int64_t kGroups = 2, kHeads = 3, kHeadDim = 4;
constexpr int64_t kQueries = kGroups * kHeads * kHeadDim, kKeys = kGroups * kHeadDim;

/// Four sequences of six tokens.
PackedSequences four_sequences() { return testing::packed({{6}, {1, 5}, {2, 1, 1, 2}, {3, 3}}); }

/// What queries or keys go through, with the inputs that have gradients.
struct Convolved {
  std::vector<Value> inputs;
  Value result;
};

class MeshProgram {
 public:
  explicit MeshProgram(Builder& builder)
      : builder_(builder),
        mesh_(builder.program().mesh()),
        tensor_(mesh_.tensor()),
        data_(mesh_.data().front()),
        own_tokens_(four_sequences().tokens() / mesh_.size(data_)) {
    options_.sequence = 6;
    options_.document_starts = builder.input(
        "document_starts", {{own_tokens_}, DType::i32, of_tokens().with(tensor_, replicated())});
  }

  void write() {
    const Convolved query = convolved("query", kQueries, kGroups * kHeads);
    const Convolved key = convolved("key", kKeys, kGroups);
    const QueryAndKey bias{weight("query_bias", {kQueries}), weight("key_bias", {kKeys})};
    const Value temperature = weight("temperature", {kGroups});
    const QueryAndKey result =
        mean_skip_norm(builder_, {query.inputs[0], key.inputs[0]}, {query.result, key.result}, bias,
                       temperature, {.head_dim = kHeadDim});
    std::vector<Value> inputs = query.inputs;
    inputs.insert(inputs.end(), key.inputs.begin(), key.inputs.end());
    inputs.insert(inputs.end(), {bias.query, bias.key, temperature});
    finish({result.query, result.key}, inputs);
  }

 private:
  Distribution of_tokens() const { return Distribution().with(data_, sharded(0)); }

  Value rows(const std::string& name, int64_t columns) {
    const Shape shape{own_tokens_, columns / mesh_.size(tensor_)};
    return builder_.input(name, {shape, DType::f64, of_tokens().with(tensor_, sharded(1))});
  }
  Value weight(const std::string& name, const Shape& whole) {
    const Shape shape = whole.with_dim(0, whole[0] / mesh_.size(tensor_));
    const Distribution split = Distribution().with(data_, replicated()).with(tensor_, sharded(0));
    return builder_.input(name, {shape, DType::f64, split});
  }

  Convolved convolved(const std::string& name, int64_t columns, int64_t heads) {
    const Value x = rows(name, columns);
    const Value first = weight(name + "_taps", {columns, 2});
    const Value bias = weight(name + "_taps_bias", {columns});
    const Value second = weight(name + "_groups", {columns, kHeadDim, 2});
    const Value taps = depthwise_taps(builder_, x, first, bias, options_);
    return {{x, first, bias, second},
            grouped_convolution(builder_, taps, second, heads / mesh_.size(tensor_))};
  }

  /// Marks the results and the gradients of the inputs as outputs, with names.
  void finish(const std::vector<Value>& results, const std::vector<Value>& inputs) {
    std::vector<Seed> seeds;
    for (const Value result : results) {
      testing::mark(builder_, result, fmt::format("result{}", seeds.size()));
      const Value seed = builder_.input(fmt::format("seed{}", seeds.size()), builder_.spec(result));
      seeds.push_back({result, seed, SeedKind::boundary});
    }
    const std::vector<Value> gradients = differentiate(builder_, seeds, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      testing::mark(builder_, gradients[i], "of_" + builder_.program().info(inputs[i]).name);
    }
  }

  Builder& builder_;
  const Mesh mesh_;
  Axis tensor_;
  Axis data_;
  int64_t own_tokens_;
  SequenceOptions options_;
};

/// The inputs of all ranks together, random but for the document starts.
std::map<std::string, Tensor> whole_inputs() {
  std::map<std::string, Tensor> inputs;
  const auto add = [&](const std::string& name, const Shape& shape) {
    inputs[name] = testing::random_tensor(shape, DType::f64, name);
  };
  const int64_t tokens = four_sequences().tokens();
  for (const auto& [name, columns] : {std::pair("query", kQueries), std::pair("key", kKeys)}) {
    const std::string start(name);
    add(start, {tokens, columns});
    add(start + "_taps", {columns, 2});
    add(start + "_taps_bias", {columns});
    add(start + "_groups", {columns, kHeadDim, 2});
    add(start + "_bias", {columns});
  }
  add("temperature", {kGroups});
  add("seed0", {tokens, kQueries});
  add("seed1", {tokens, kKeys});
  inputs["document_starts"] = four_sequences().fixed().at("document_starts");
  return inputs;
}

TEST(CompressedAttentionOnMeshes, ResultsAndGradientsAreThoseOfOneRank) {
  const auto run_on = [](const Mesh& mesh) {
    return testing::MeshRun(
        mesh, [](Builder& builder) { MeshProgram(builder).write(); },
        testing::give_parts(mesh, whole_inputs()));
  };
  const testing::MeshRun one = run_on(Mesh({.data = {1}}));
  const testing::MeshRun four = run_on(Mesh({.tensor = 2, .data = {2}}));
  std::vector<std::string> names{"result0", "result1"};
  for (const auto& [name, tensor] : whole_inputs()) {
    if (tensor.dtype() == DType::f64 && !name.starts_with("seed")) names.push_back("of_" + name);
  }
  EXPECT_EQ(names.size(), 13U);
  for (const std::string& name : names) {
    testing::expect_close(testing::as_doubles(four.whole(name)),
                          testing::as_doubles(one.whole(name)), {0, 1e-13}, name);
  }
}

/// The context axis splits the positions of sequences.
TEST(CompressedAttentionOnMeshes, PartsOfSequencesAreRefused) {
  const Mesh mesh({.context = 2});
  Program program(mesh, 0);
  Builder builder(program);
  const Distribution split = Distribution().with(
      mesh.context(), sharded(0, {.kind = PieceKind::zigzag}, /*factor=*/1, /*repeats=*/1));
  const Distribution all = Distribution().with(mesh.context(), replicated());
  const Value x = builder.input("x", {{8, 4}, DType::f32, split});
  const Value weight = builder.input("weight", {{4, 2}, DType::f32, all});
  const Value bias = builder.input("bias", {{4}, DType::f32, all});
  const std::string of_taps =
      testing::refusal_of([&] { depthwise_taps(builder, x, weight, bias, {.sequence = 8}); });
  EXPECT_THAT(of_taps, HasSubstr("depthwise_taps"));
  EXPECT_THAT(of_taps, HasSubstr("dim 0 (s) must be whole"));
  const std::string of_values =
      testing::refusal_of([&] { join_delayed(builder, x, x, {.sequence = 8}); });
  EXPECT_THAT(of_values, HasSubstr("join_delayed"));
  EXPECT_THAT(of_values, HasSubstr("dim 0 (s) must be whole"));
}

/// The first half of all values is a token's own, whichever heads a rank has.
TEST(CompressedAttentionOnMeshes, PartsOfValuesAreRefused) {
  const Mesh mesh({.tensor = 2});
  Program program(mesh, 0);
  Builder builder(program);
  const Distribution split = Distribution().with(mesh.tensor(), sharded(1));
  const Value x = builder.input("x", {{8, 4}, DType::f32, split});
  EXPECT_THAT(testing::refusal_of([&] { join_delayed(builder, x, x, {.sequence = 8}); }),
              HasSubstr("dim 1 (c) must be whole"));
}

}  // namespace
}  // namespace tessera
