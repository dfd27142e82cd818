#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "model/model.h"
#include "model/small_configs.h"
#include "ops/labels/cases.h"
#include "ops/labels/rules_by_hand.h"
#include "program/label_rules.h"
#include "state/update_program.h"
#include "support/operation_run.h"
#include "support/shared_states.h"
#include "support/small_family.h"

namespace tessera::testing {
namespace {

/// An operation's name and the text of its labels.
using NamedLabels = std::pair<std::string, std::string>;

/// Operations with as many operands as there are units, layers or parts: their labels differ by
/// that number alone, of which the table has a few.
bool is_counted(const std::string& operation) {
  static const std::set<std::string> counted{"adamw",
                                             "clip_gradients",
                                             "copy_kept",
                                             "join_parts",
                                             "load_balance_gradient",
                                             "load_balance_loss",
                                             "muon_measures",
                                             "muon_measures_of_blocks",
                                             "muon_momentum",
                                             "muon_update",
                                             "newton_schulz",
                                             "newton_schulz_of_blocks",
                                             "probability_sums",
                                             "round_to_weights",
                                             "sum_of_squares",
                                             "add_in_order",
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
  for (const Family family : every_family()) {
    ModelConfig config = small_family(family);
    models.push_back(config);
    config.tied_head = true;
    config.clip_qkv = config.attention == AttentionKind::grouped_query ? 8 : 0;
    config.rotary_fraction = 0.5;
    config.activation = Activation::gelu;
    models.push_back(config);
  }
  ModelConfig& skipping = models.back();  // ZAYA1's
  skipping.skip_expert = SkipExpert::input;
  skipping.balance_biases = BiasBalancing::sign;
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

/// The same in sizes that divide over two tensor ranks, and with every set of tokens of losses.
std::vector<ModelConfig> all_models_of_ranks() {
  std::vector<ModelConfig> models = all_models();
  for (ModelConfig& config : models) {
    if (config.heads % 2 == 0) continue;
    config.heads = 4;
    config.hidden_size = 16;
  }
  ModelConfig config = small_mixture();
  config.balance_tokens = BalanceTokens::rank;
  models.push_back(config);
  config.balance_tokens = BalanceTokens::global_batch;
  models.push_back(config);
  return models;
}

/// AdamW, and Muon in both of its ways with matrices that ranks split.
std::vector<OptimizerConfig> optimizers() {
  std::vector<OptimizerConfig> result(3);
  result[1].name = result[2].name = OptimizerName::muon;
  result[2].muon_split = MuonSplit::blocks;
  return result;
}

/// Whether there is such a test.
bool exists(const NamedTest& test) {
  const std::filesystem::path tests = std::filesystem::path(TESSERA_SOURCE) / "tests";
  const std::string source = read_file(tests / test.file);
  return source.find(fmt::format("({}, {})", test.suite, test.name)) != std::string::npos;
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
      // On one rank no labels are asked for: what no case tries needs a test of its rule.
      const bool by_hand = program.mesh().ranks() > 1
                               ? !labels_decide(program, node)
                               : rules_by_hand().contains(used.first) && !table_.contains(used);
      if (by_hand) {
        require_named_test(used.first);
        continue;
      }
      if (!used_.insert(used).second) continue;
      EXPECT_TRUE(table_.contains(used))
          << "the table of labels lacks " << used.first << ": " << used.second;
    }
  }

  /// Requires the operations of all programs of a training run.
  void require_programs(const ModelConfig& config, DType compute, const ProgramSize& size,
                        const MeshRank& place = {}, const ExpertLayout& experts = {}) {
    const bool all = size.document_mask;
    const Chunk chunk =
        write_training(config, compute, size, Recompute{all, all, all, all}, place, experts);
    const auto& units = chunk.outline.parameters.units();
    require(chunk.program);
    const BalancedUnits balance{chunk.outline.balance_units, chunk.outline.balance_rate};
    const auto& specs = chunk.outline.parameters.specs();
    for (const ShardAxes& axes : {ShardAxes{}, states_over_all(place.mesh)}) {
      const ShardPlan shard{.axes = axes};
      for (const OptimizerConfig& optimizer : optimizers()) {
        const UpdateProgram update =
            write_update(units, specs, chunk.outline.sums.all(), optimizer, place, shard, balance);
        require(update.program);
        require(write_step_start(units, specs, chunk.outline.sums.all(), place, update.sharing));
        require(write_rounding(units, specs, place, update.sharing));
      }
    }
    require(write_evaluation(config, compute, size, place, experts).program);
  }

  std::set<std::string> names_used() const {
    std::set<std::string> names;
    for (const auto& [name, labels] : used_) names.insert(name);
    return names;
  }

  std::set<NamedLabels> table_;
  std::set<NamedLabels> used_;
  std::set<std::string> used_by_hand_;

 private:
  void require_named_test(const std::string& operation) {
    if (!used_by_hand_.insert(operation).second) return;
    const auto test = rules_by_hand().find(operation);
    if (test == rules_by_hand().end()) {
      ADD_FAILURE() << operation << " has a rule by hand; name its test in rules_by_hand.h";
      return;
    }
    EXPECT_TRUE(exists(test->second)) << operation << ": no test " << test->second.suite << "."
                                      << test->second.name << " in " << test->second.file;
  }
};

TEST_F(Coverage, EveryOperationOfAProgramIsInTheTableOfLabels) {
  for (const ModelConfig& config : all_models()) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      for (const bool document_mask : {false, true}) {
        require_programs(config, compute,
                         {.sequences = 2, .context = 8, .document_mask = document_mask});
      }
      require(write_decoding(config, compute, 2, 8).program);
    }
  }
  EXPECT_GE(names_used().size(), 45U);
}

/// Cuts the model behind its first two layers.
std::vector<ChunkRange> two_chunks(const ModelConfig& config) {
  return {{.layers = {0, 2}, .embedding = true, .head = false},
          {.layers = {2, config.layers}, .embedding = false, .head = true}};
}

/// Operations that only ranks have are in the table too, or have a rule by hand with its own test.
TEST_F(Coverage, EveryOperationOfAMeshIsInTheTableOrHasATestOfItsRuleByHand) {
  for (const int expert_ranks : {1, 2}) {
    const Mesh mesh({.tensor = 2, .context = 2, .data = {2}, .expert = expert_ranks});
    for (const ModelConfig& config : all_models_of_ranks()) {
      for (const auto exchange : {ExpertExchange::all_gather, ExpertExchange::all_to_all}) {
        for (const bool document_mask : {false, true}) {
          const ProgramSize size{.sequences = 4, .context = 16, .document_mask = document_mask};
          const ExpertLayout experts{
              .exchange = exchange,
              .capacity_tokens = document_mask ? TokenSet::rank : TokenSet::micro_batch};
          const DType compute = document_mask ? DType::bf16 : DType::f32;
          const int rank = document_mask ? mesh.ranks() - 1 : 0;
          require_programs(config, compute, size, {mesh, rank}, experts);
        }
        if (!config.mixture()) break;  // it exchanges nothing
      }
    }
  }
  // Matrices that are cut, where ranks share out Muon's states.
  ModelConfig of_large_matrices = small_dense();
  of_large_matrices.layers = 3;
  of_large_matrices.hidden_size = 16;
  of_large_matrices.heads = of_large_matrices.kv_heads = 4;
  of_large_matrices.feed_forward_size = 1200;
  const Mesh mesh({.tensor = 2, .context = 2, .data = {2}});
  require_programs(of_large_matrices, DType::f32, {.sequences = 4, .context = 16}, {mesh, 0});
  // Chunks that pass on the sums of a loss.
  ModelConfig in_chunks = small_mixture();
  in_chunks.layers = 4;
  in_chunks.balance_form = BalanceForm::pooled;
  for (const BalanceTokens tokens :
       {BalanceTokens::rank, BalanceTokens::micro_batch, BalanceTokens::global_batch}) {
    in_chunks.balance_tokens = tokens;
    for (const ChunkRange& range : two_chunks(in_chunks)) {
      const ProgramSize size{.sequences = 4, .context = 16};
      require(write_chunk(in_chunks, DType::f32, size, {}, range, {mesh, 0}).program);
      require(write_chunk(in_chunks, DType::f32, size, {}, range).program);
    }
  }
  for (const char* const of_ranks : {"repeat_heads", "row_squares", "scale_rows", "set_counts",
                                     "step_counts", "sum_of_counts"}) {
    EXPECT_TRUE(names_used().contains(of_ranks)) << of_ranks;
  }
  for (const auto& [operation, test] : rules_by_hand()) {
    EXPECT_TRUE(used_by_hand_.contains(operation)) << "no program has " << operation;
  }
}

}  // namespace
}  // namespace tessera::testing
