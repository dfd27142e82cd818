#include "verify/layout_run.h"

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/words.h"
#include "config/mesh_of.h"
#include "support/error_of.h"
#include "support/layouts.h"
#include "support/random_batches.h"
#include "support/small_family.h"
#include "verify/layout_trials.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

/// A model with some keys changed, and how its ranks share it.
struct Case {
  std::string name;
  ModelConfig model;
  std::function<void(LayoutTrial&)> change = [](LayoutTrial&) {};
};

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

void with_muon(LayoutTrial& trial) { trial.optimizer.name = OptimizerName::muon; }

std::vector<Case> cases() {
  const auto with = [](ModelConfig config, auto&& change) {
    change(config);
    return config;
  };
  return {
      {"dense", laid_out_dense()},
      {"without_document_mask", laid_out_dense(),
       [](LayoutTrial& trial) { trial.size.document_mask = false; }},
      {"few_key_heads", with(laid_out_dense(), [](ModelConfig& c) { c.kv_heads = 1; })},
      {"row_norms", with(laid_out_dense(),
                         [](ModelConfig& c) {
                           c.query_key_norm = QueryKeyNorm::projection;
                           c.clip_qkv = 0.6;
                         })},
      {"head_norms_tied", with(laid_out_dense(),
                               [](ModelConfig& c) {
                                 c.query_key_norm = QueryKeyNorm::head;
                                 c.tied_head = true;
                                 c.z_loss_coefficient = 0.01;
                               })},
      {"norms_without_weights", with(laid_out_dense(),
                                     [](ModelConfig& c) {
                                       c.norm = NormKind::layer;
                                       c.norm_weights = false;
                                       c.query_key_norm = QueryKeyNorm::projection;
                                     })},
      {"uneven", with(laid_out_dense(),
                      [](ModelConfig& c) {
                        c.vocabulary_size = 37;
                        c.feed_forward_size = 27;
                      })},
      {"uneven_tied",
       with(laid_out_dense(),
            [](ModelConfig& c) {
              c.vocabulary_size = 257;
              c.feed_forward_size = 7;
              c.tied_head = true;
            }),
       [](LayoutTrial& trial) { trial.recompute.layer = true; }},
      {"uneven_mixture", with(laid_out_mixture(),
                              [](ModelConfig& c) {
                                c.vocabulary_size = 33;
                                c.shared_experts = 1;
                                c.expert_size = 13;
                                c.dense_layers = 1;
                                c.feed_forward_size = 21;
                              })},
      {"recomputed", laid_out_dense(),
       [](LayoutTrial& trial) { trial.recompute = {.norm = true, .attention = true}; }},
      {"mixture", laid_out_mixture()},
      {"mixture_shared_dense_renormalised", with(laid_out_mixture(),
                                                 [](ModelConfig& c) {
                                                   c.shared_experts = 1;
                                                   c.dense_layers = 1;
                                                   c.feed_forward_size = 24;
                                                   c.renormalise_weights = true;
                                                 })},
      {"mixture_pooled_recomputed",
       with(laid_out_mixture(), [](ModelConfig& c) { c.balance_form = BalanceForm::pooled; }),
       [](LayoutTrial& trial) {
         trial.recompute.layer = true;
         trial.experts.exchange = ExpertExchange::all_to_all;
       }},
      {"mixture_recomputed_experts_all_gather", laid_out_mixture(),
       [](LayoutTrial& trial) {
         trial.recompute.experts = true;
         trial.experts.exchange = ExpertExchange::all_gather;
       }},
      {"mixture_recomputed_experts_all_to_all", laid_out_mixture(),
       [](LayoutTrial& trial) {
         trial.recompute.experts = true;
         trial.experts.exchange = ExpertExchange::all_to_all;
       }},
      {"mixture_capacity",
       with(laid_out_mixture(), [](ModelConfig& c) { c.capacity_factor = 1.1; })},
      {"muon", laid_out_dense(), with_muon},
      {"muon_few_key_heads_uneven",
       with(laid_out_dense(),
            [](ModelConfig& c) {
              c.kv_heads = 1;
              c.feed_forward_size = 27;
            }),
       with_muon},
      {"muon_mixture",
       with(laid_out_mixture(),
            [](ModelConfig& c) {
              c.shared_experts = 1;
              c.dense_layers = 1;
              c.feed_forward_size = 24;
            }),
       with_muon},
      {"mixture_balanced_by_signs", with(laid_out_mixture(),
                                         [](ModelConfig& c) {
                                           c.balance_biases = BiasBalancing::sign;
                                           c.balance_bias_rate = 0.05;
                                         })},
      {"zaya_muon",
       with(testing::small_family(Family::zaya),
            [](ModelConfig& c) {
              c.kv_heads = 4;  // divides over all ranks of the layouts
              c.initialization_deviation = 0.2;
              c.balance_bias_rate = 0.05;
            }),
       with_muon},
      {"mixture_forced",
       with(laid_out_mixture(), [](ModelConfig& c) { c.forced_uniform_routing = true; })},
  };
}

/// What experts' ranks can exchange tokens by.
std::vector<ExpertExchange> exchanges(int expert_ranks) {
  if (expert_ranks == 1) return {ExpertExchange::automatic};
  return {ExpertExchange::all_gather, ExpertExchange::all_to_all};
}

/// Two steps of two micro-batches of all ranks.
std::vector<std::vector<Batch>> two_steps(const LayoutTrial& trial) {
  return testing::random_batches(trial.size, trial.model.vocabulary_size, 2, 2, 5);
}

class LayoutRun : public ::testing::TestWithParam<Case> {};

TEST_P(LayoutRun, GivesWhatOneRankGives) {
  LayoutTrial trial{.model = GetParam().model,
                    .size = {.sequences = 8, .context = 16, .document_mask = true},
                    .mesh = {}};
  GetParam().change(trial);
  const auto batches = two_steps(trial);
  const LayoutResults expected = run_layout(trial, batches);
  for (const MeshSizes& sizes : few_layouts(trial.model.mixture())) {
    trial.mesh = Mesh(sizes);
    SCOPED_TRACE(trial.mesh.text());
    expect_same_model(expected, run_layout(trial, batches));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayoutRun, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

/// A run of a family in small sizes, as a configuration says it.
RunConfig run_of(Family family) {
  RunConfig config;
  config.model = testing::small_family(family);
  // What a layer does is the same in each. LayoutRun has routers whose state crosses layers.
  config.model.layers = 1;
  config.model.initialization_deviation = 0.2;  // small weights would hide mistakes
  config.data.context = 16;
  config.train.global_batch = 16;
  return config;
}

class LayoutOfFamily : public ::testing::TestWithParam<Family> {};

/// What a family cannot take is refused, with the reason, where a configuration becomes a mesh.
TEST_P(LayoutOfFamily, GivesWhatOneRankGives) {
  RunConfig config = run_of(GetParam());
  LayoutTrial trial{
      .model = config.model, .size = {.sequences = 8, .context = config.data.context}, .mesh = {}};
  const auto batches = two_steps(trial);
  const LayoutResults expected = run_layout(trial, batches);
  for (const MeshSizes& sizes : testing::every_layout(4)) {
    const int data = sizes.data.front();
    const int ranks = sizes.tensor * sizes.context * data;
    config.parallel = {.tensor = sizes.tensor, .context = sizes.context, .expert = sizes.expert};
    config.train.micro_batch = trial.size.sequences / data;
    if (sizes.expert > 1 && !config.model.mixture()) {
      EXPECT_THAT(error_of([&] { mesh_of(config, ranks); }), HasSubstr("the model has no experts"));
      continue;
    }
    if (config.model.attention == AttentionKind::compressed_convolutional &&
        config.model.kv_heads % sizes.tensor != 0) {
      EXPECT_THAT(error_of([&] { mesh_of(config, ranks); }),
                  HasSubstr("does not divide model.kv_heads"));
      continue;
    }
    trial.mesh = mesh_of(config, ranks);
    for (const ExpertExchange exchange : exchanges(sizes.expert)) {
      trial.experts.exchange = exchange;
      SCOPED_TRACE(fmt::format("{}, {}", trial.mesh.text(), word(exchange)));
      expect_same_model(expected, run_layout(trial, batches));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LayoutOfFamily, ::testing::ValuesIn(testing::every_family()),
                         testing::name_of_family);

}  // namespace
}  // namespace tessera
