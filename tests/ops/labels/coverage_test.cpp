#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "model/model.h"
#include "model/small_configs.h"
#include "ops/labels/cases.h"
#include "state/update_program.h"
#include "support/operation_run.h"

namespace tessera::testing {
namespace {

/// An operation's name and the text of its labels.
using NamedLabels = std::pair<std::string, std::string>;

/// Operations with as many operands as there are units, layers or parts: their labels differ by
/// that number alone, of which the table has a few.
bool is_counted(const std::string& operation) {
  static const std::set<std::string> counted{"adamw",
                                             "clip_gradients",
                                             "join_parts",
                                             "load_balance_gradient",
                                             "load_balance_loss",
                                             "probability_sums",
                                             "round_to_weights",
                                             "sum_of_squares",
                                             "zero"};
  return counted.contains(operation);
}

NamedLabels named(const Operation& operation, std::span<const Spec> inputs) {
  const std::string name(operation.name());
  return {name, is_counted(name) ? "" : operation.labels(inputs)};
}

/// Small models of all families and options that make other operations.
std::vector<ModelConfig> all_models() {
  std::vector<ModelConfig> models{small_dense(), small_mixture()};
  for (const Family family : {Family::llama, Family::mixtral, Family::olmo, Family::olmoe}) {
    ModelConfig config = family_preset(family);
    config.layers = 2;
    config.hidden_size = 16;
    config.heads = 4;
    config.kv_heads = family == Family::olmo ? 4 : 2;
    config.head_dim = 0;
    config.vocabulary_size = kVocabulary;
    config.feed_forward_size = config.mixture() ? 0 : 24;
    config.experts = config.mixture() ? 4 : 0;
    config.experts_per_token = config.mixture() ? 2 : 0;
    config.expert_size = config.mixture() ? 8 : 0;
    models.push_back(config);
    config.tied_head = true;
    config.clip_qkv = 8;
    config.rotary_fraction = 0.5;
    config.activation = Activation::gelu;
    models.push_back(config);
  }
  for (const QueryKeyNorm norm : {QueryKeyNorm::projection, QueryKeyNorm::head}) {
    ModelConfig config = small_mixture();
    config.query_key_norm = norm;
    config.balance_form = BalanceForm::pooled;
    config.balance_tokens = BalanceTokens::global_batch;
    config.capacity_factor = 1.5;
    config.shared_experts = 1;
    config.dense_layers = 1;
    config.feed_forward_size = 10;
    config.forced_uniform_routing = norm == QueryKeyNorm::head;
    models.push_back(config);
    config = small_dense();
    config.query_key_norm = norm;
    config.norm = NormKind::layer;
    config.norm_weights = false;
    models.push_back(config);
  }
  return models;
}

class Coverage : public ::testing::Test {
 protected:
  Coverage() {
    for (const LabelCase& of : all_label_cases()) {
      const MadeOperation made = make_operation(of, LabelRanges(of.extents));
      table_.insert(named(*made.operation, made.inputs));
    }
  }

  void require(const Program& program) {
    for (const Node& node : program.nodes()) {
      const NamedLabels used = named(*node.operation, program.specs(node.inputs));
      if (!used_.insert(used).second) continue;
      EXPECT_TRUE(table_.contains(used))
          << "the table of labels lacks " << used.first << ": " << used.second;
    }
  }

  std::set<NamedLabels> table_;
  std::set<NamedLabels> used_;
};

TEST_F(Coverage, EveryOperationOfAProgramIsInTheTableOfLabels) {
  for (const ModelConfig& config : all_models()) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      for (const bool recomputes : {false, true}) {
        const ProgramSize size{.sequences = 2, .context = 8, .document_mask = recomputes};
        const Recompute recompute{recomputes, recomputes, recomputes, recomputes};
        const Chunk chunk = write_training(config, compute, size, recompute);
        require(chunk.program);
        require(write_step_start(chunk.parameters.units(), chunk.sums()));
        require(write_update(chunk.parameters.units(), chunk.parameters.specs(), chunk.sums(), {})
                    .program);
        require(write_rounding(chunk.parameters.units()));
        require(write_evaluation(config, compute, size).program);
      }
      require(write_decoding(config, compute, 2, 8).program);
    }
  }
  std::set<std::string> names;
  for (const auto& [name, labels] : used_) names.insert(name);
  EXPECT_GE(names.size(), 45U);
}

}  // namespace
}  // namespace tessera::testing
