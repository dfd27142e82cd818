#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "engine/rematerialize.h"
#include "model/mixture.h"
#include "ops/collective/convert.h"
#include "ops/router/losses.h"
#include "support/mesh_programs.h"
#include "support/relative_difference.h"

namespace tessera::testing {

/// A mixture layer alone with its router's losses, whose router chooses what a test wants.
struct MixtureSetting {
  MeshSizes mesh;
  ExpertLayout layout = {};
  /// Of each token, the classes it chooses, the most probable first; all tokens have as many. The
  /// class after the experts is the one that skips.
  std::vector<std::vector<int>> choices;
  int64_t experts = 8;
  double capacity_factor = 0;
  SkipExpert skip = SkipExpert::none;
  bool recomputes = false;  ///< the experts, with their exchange
  /// Whether the tokens have the types of a mesh. Without them all is one rank's.
  bool typed = true;
};

/// The layer run forward and backward on every rank of the mesh, in f64, and what the ranks have
/// together.
class MixtureRun {
 public:
  static constexpr int64_t kExpertSize = 5;

  explicit MixtureRun(const MixtureSetting& setting)
      : setting_(setting),
        config_(config_of(setting)),
        mesh_(setting.mesh),
        lists_(static_cast<size_t>(mesh_.ranks())) {
    run_ = std::make_unique<MeshRun>(
        mesh_, [this](Builder& builder) { write(builder); },
        [this](int rank, const ValueInfo& value) { return given(rank, value); });
  }

  const MeshRun& run() const { return *run_; }
  const Mesh& mesh() const { return mesh_; }
  std::vector<double> counts() const { return numbers_of(run_->whole("counts")); }

  /// The output, the probabilities, the losses, the gradient of x and those of all weights, by
  /// name.
  std::map<std::string, std::vector<double>> results() const {
    std::map<std::string, std::vector<double>> results;
    for (const char* name : {"y", "probabilities", "of_x", "balance", "z"}) {
      results[name] = numbers_of(run_->whole(name));
    }
    for (const ParameterSpec& spec : lists_[0].specs()) results[spec.name] = gradient(spec);
    return results;
  }

  /// The tokens, [tokens, experts + 1]: large where a token is to choose an expert.
  static Tensor tokens_of(const MixtureSetting& setting) {
    const auto tokens = std::ssize(setting.choices);
    const Tensor x = drawn({{tokens, setting.experts + 1}, DType::f64, {}}, "tokens");
    for (int64_t t = 0; t < tokens; ++t) {
      double* row = x.data<double>() + t * (setting.experts + 1);
      for (int64_t e = 0; e <= setting.experts; ++e) row[e] *= 0.1;
      double logit = 3;
      for (const int expert : setting.choices[static_cast<size_t>(t)]) row[expert] += logit -= 0.5;
    }
    return x;
  }

 private:
  static ModelConfig config_of(const MixtureSetting& setting) {
    ModelConfig config;
    config.layers = 1;
    config.hidden_size = setting.experts + 1;
    config.experts = setting.experts;
    config.experts_per_token = std::ssize(setting.choices.at(0));
    config.expert_size = kExpertSize;
    config.capacity_factor = setting.capacity_factor;
    config.skip_expert = setting.skip;
    config.initialization_deviation = 0.4;
    return config;
  }

  /// Split over data, context and tensor, the outermost first.
  Distribution tokens() const {
    Distribution tokens;
    if (!setting_.typed) return tokens;
    for (size_t level = mesh_.data().size(); level-- > 0;) {
      tokens = tokens.with(mesh_.data()[level], sharded(0));
    }
    return tokens.with(mesh_.context(), sharded(0)).with(mesh_.tensor(), sharded(0));
  }

  void write(Builder& builder) {
    const int64_t own = std::ssize(setting_.choices) / mesh_.ranks();
    const Spec spec{{own, config_.hidden_size}, DType::f64, tokens()};
    const Value x = builder.input("x", spec);
    ModelWriter writer{.builder = builder,
                       .config = config_,
                       .compute = DType::f64,
                       .layout = {},
                       .unit = "layers.0"};
    const RoutedLayer layer = [&] {
      const auto scope = builder.layer_scope("layers.0", 0);
      return mixture_of_experts(writer, x, setting_.layout);
    }();
    builder.name(layer.output, "y");
    builder.name(layer.counts, "counts");
    builder.name(layer.probabilities, "probabilities");
    const Value balance =
        load_balance_loss(builder, std::vector{layer.probabilities}, std::vector{layer.counts}, 0.5,
                          config_.experts_per_token, BalanceForm::per_layer);
    builder.name(balance, "balance");
    const Value z = router_z_loss(builder, layer.logits, 0.3);
    builder.name(z, "z");
    const Value one = builder.state("one", {{1}, DType::f64, {}});
    const std::vector<Seed> seeds{{layer.output, builder.input("seed", spec), SeedKind::boundary},
                                  {balance, one},
                                  {z, use_like(builder, one, z)}};
    const Value of_x = differentiate(builder, seeds, std::vector{x})[0];
    builder.name(of_x, "of_x");
    for (const Value value : {layer.output, layer.counts, layer.probabilities, balance, z, of_x}) {
      builder.output(value);
    }
    if (setting_.recomputes) rematerialize(builder, {.experts = true});
    writer.parameters.note_gradients(builder.program());
    lists_[static_cast<size_t>(builder.program().rank())] = std::move(writer.parameters);
  }

  /// The router's weight is nearly the identity, so that the tokens say what they choose.
  Tensor first_values(const ParameterSpec& spec, int rank) const {
    const TensorPiece piece(mesh_, spec.distribution, spec.shape, rank);
    const Tensor values(piece.shape(), DType::f64);
    initialize(spec, 7, piece, values, 1);
    if (spec.role != ParameterRole::router) return values;
    for (int64_t i = 0; i < values.elements(); ++i) {
      const bool diagonal = i / spec.shape[1] == i % spec.shape[1];
      values.data<double>()[i] = values.data<double>()[i] * 0.01 + (diagonal ? 1 : 0);
    }
    return values;
  }

  Tensor given(int rank, const ValueInfo& value) const {
    if (value.kind == ValueKind::main_gradient) return zeros(value.spec);
    if (value.name == "x") return part_of_rank(mesh_, tokens(), tokens_of(setting_), rank);
    if (value.name == "one") return tensor_of({1}, DType::f64, std::vector{1.0});
    if (value.name == "seed") {
      const Shape shape{std::ssize(setting_.choices), config_.hidden_size};
      return part_of_rank(mesh_, tokens(), drawn({shape, DType::f64, {}}, "seed"), rank);
    }
    const ParameterList& list = lists_[static_cast<size_t>(rank)];
    const Tensor unit = zeros(value.spec);
    for (const ParameterSpec& spec : list.specs()) {
      if (list.units()[static_cast<size_t>(spec.unit_index)].name != value.name) continue;
      unit.view(spec.unit_offset, spec.piece_shape).copy_from(first_values(spec, rank));
    }
    return unit;
  }

  static Tensor zeros(const Spec& spec) {
    const Tensor tensor(spec.shape, spec.dtype);
    tensor.fill_zero();
    return tensor;
  }

  /// The whole gradient of a parameter: the sum of the addends of ranks where it is partial.
  std::vector<double> gradient(const ParameterSpec& spec) const {
    std::vector<double> whole(static_cast<size_t>(spec.shape.elements()));
    const ParameterUnit& unit = lists_[0].units()[static_cast<size_t>(spec.unit_index)];
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      const bool repeats =
          std::ranges::any_of(mesh_.axes_of(unit.distribution.view()), [&](Axis axis) {
            return unit.gradient_distribution.on(axis).placement == Placement::invariant &&
                   mesh_.coordinate(rank, axis) > 0;
          });
      if (repeats) continue;
      const TensorPiece piece(mesh_, spec.distribution, spec.shape, rank);
      const double* part =
          run_->value(rank, "gradient:" + unit.name).data<double>() + spec.unit_offset;
      for (int64_t i = 0; i < piece.shape().elements(); ++i) {
        whole[static_cast<size_t>(piece.element_of_whole(i))] += part[i];
      }
    }
    return whole;
  }

  MixtureSetting setting_;
  ModelConfig config_;
  Mesh mesh_;
  std::vector<ParameterList> lists_;  // by rank
  std::unique_ptr<MeshRun> run_;
};

struct NamedMesh {
  std::string name;  ///< expert x expert_data
  MeshSizes sizes;
};
inline std::vector<NamedMesh> mixture_meshes() {
  return {{"1x1", {}},
          {"2x1", {.tensor = 2, .expert = 2}},
          {"1x2", {.tensor = 2}},
          {"2x2", {.tensor = 2, .data = {2}, .expert = 2}},
          {"4x1", {.context = 2, .data = {2}, .expert = 4}},
          {"4x2", {.tensor = 2, .data = {2, 2}, .expert = 4}},
          {"8x1", {.tensor = 2, .context = 2, .data = {2}, .expert = 8}}};
}

/// Expects that two runs have the same results, and that none of them are zeros.
inline void expect_near(const std::map<std::string, std::vector<double>>& own,
                        const std::map<std::string, std::vector<double>>& expected,
                        const std::string& what) {
  ASSERT_EQ(own.size(), expected.size());
  for (const auto& [name, numbers] : expected) {
    const std::vector<double>& found = own.at(name);
    EXPECT_THAT(numbers, ::testing::Contains(::testing::Ne(0))) << what << ": " << name;
    EXPECT_LE(relative_difference(numbers, found), 1e-12) << what << ": " << name;
  }
}

}  // namespace tessera::testing
