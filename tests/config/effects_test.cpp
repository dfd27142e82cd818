#include "config/effects.h"

#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"
#include "config/sections.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A key that may have no effect: how it is set, in vain and otherwise.
struct Example {
  std::string key;                  ///< of a list of tables without the table's number
  std::vector<std::string> set;     ///< the key alone
  std::vector<std::string> vain;    ///< with which it has no effect
  std::vector<std::string> useful;  ///< with which it has one
  std::string why;                  ///< part of the sentence
  int ranks = 1, useful_ranks = 1;
};

const std::vector<std::string> kDense{"model.family=llama"};
const std::vector<std::string> kExperts{"model.family=olmoe"};
const std::vector<std::string> kStretched{"model.rope_scaling=llama3"};
const std::vector<std::string> kMuon{"optimizer.name=muon"};
const std::vector<std::string> kConstant{"optimizer.schedule=constant"};
const std::vector<std::string> kOneStep{"train.steps=1", "optimizer.warmup_steps=0"};
const std::vector<std::string> kSource{R"(data.sources=[{path="a"}])"};
const std::vector<std::string> kPrepared{R"(data.sources=[{path="a", format="prepared"}])"};

/// Overrides for two phases with these keys.
std::vector<std::string> phases(const std::string& first, const std::string& second) {
  return {fmt::format("train.phases=[{{steps=30, {}}}, {{steps=1, {}}}]", first, second)};
}
const std::vector<std::string> kOneContext = phases("context=8", "name=\"x\"");

const std::vector<Example>& examples() {
  static const std::vector<Example> all{
      {"run.deterministic", {"run.deterministic=false"}, {}, {"run.device=cuda"}, "\"cpu\""},
      {"run.graphs", {"run.graphs=true"}, {}, {"run.device=cuda"}, "\"cpu\""},
      {"run.check_replicas", {"run.check_replicas=5"}, {}, {}, "one rank", 1, 2},
      {"run.check_calls", {"run.check_calls=true"}, {}, {}, "one rank", 1, 2},
      {"run.rank_timeout", {"run.rank_timeout=5"}, {}, {}, "one rank", 1, 2},
      {"run.trace_step", {"run.trace_step=40"}, {"train.steps=30"}, {}, "after step 30"},
      {"train.recompute", {"train.recompute=[\"experts\"]"}, kDense, kExperts, "a dense model"},
      {"train.recompute_stages",
       {"train.recompute_stages=[0]"},
       {},
       {"train.recompute=[\"norm\"]", "parallel.pipeline=2"},
       "train.recompute is empty"},
      {"model.rope_theta",
       {"model.rope_theta=1e4"},
       phases("rope_theta=1e4", "rope_theta=1e5"),
       phases("rope_theta=1e4", "name=\"x\""),
       "has its own"},
      {"model.rope_scaling", kStretched, {"model.rope_factor=1"}, {}, "rope_factor is 1"},
      {"model.rope_factor", {"model.rope_factor=8"}, {}, kStretched, "\"none\""},
      {"model.rope_low_frequency_factor",
       {"model.rope_low_frequency_factor=1"},
       {},
       kStretched,
       "\"none\""},
      {"model.rope_high_frequency_factor",
       {"model.rope_high_frequency_factor=4"},
       {},
       kStretched,
       "\"none\""},
      {"model.rope_original_context",
       {"model.rope_original_context=8192"},
       {},
       kStretched,
       "\"none\""},
      {"model.balance_bias_rate",
       {"model.balance_bias_rate=0.01"},
       kExperts,
       {"model.balance_biases=sign"},
       "balance_biases is \"none\""},
      {"model.renormalise_weights", {"model.renormalise_weights=true"}, kDense, {}, "dense"},
      {"model.balance_coefficient", {"model.balance_coefficient=0.01"}, kDense, {}, "dense"},
      {"model.balance_form",
       {"model.balance_form=pooled"},
       {"model.balance_coefficient=0"},
       {},
       "balance_coefficient is 0"},
      {"model.balance_tokens", {"model.balance_tokens=rank"}, kDense, {}, "dense"},
      {"model.router_z_coefficient", {"model.router_z_coefficient=0.01"}, kDense, {}, "dense"},
      {"model.capacity_factor",
       {"model.capacity_factor=100"},
       {},
       {"model.experts_per_token=1", "model.experts=101"},
       "8 times its even share"},
      {"model.forced_uniform_routing", {"model.forced_uniform_routing=true"}, kDense, {}, "dense"},
      {"model.initialization",
       {"model.initialization=scaled"},
       {"checkpoint.initial=a"},
       {},
       "checkpoint.initial"},
      {"model.initialization_deviation",
       {"model.initialization_deviation=0.1"},
       {"checkpoint.initial=a"},
       {},
       "checkpoint.initial"},
      {"model.initialization_cutoff",
       {"model.initialization_cutoff=2"},
       {"checkpoint.initial=a"},
       {},
       "checkpoint.initial"},
      {"data.context",
       {"data.context=64"},
       phases("context=8", "context=9"),
       kOneContext,
       "has its own"},
      {"data.sources.weight",
       {"data.sources.0.weight=3"},
       kSource,
       {R"(data.sources=[{path="a"}, {path="b"}])"},
       "one source"},
      {"data.sources.dtype", {"data.sources.0.dtype=int32"}, kPrepared, kSource, "prepared"},
      {"data.sources.end_of_document",
       {"data.sources.0.end_of_document=add"},
       kPrepared,
       kSource,
       "prepared"},
      {"data.sources.held_out", {"data.sources.0.held_out=0.1"}, kPrepared, kSource, "prepared"},
      {"data.sources.seed", {"data.sources.0.seed=1"}, kPrepared, kSource, "prepared"},
      {"train.stop_after", {"train.stop_after=30"}, {"train.steps=30"}, {}, "anyway"},
      {"train.micro_batch",
       {"train.micro_batch=2"},
       phases("micro_batch=1", "micro_batch=1"),
       phases("micro_batch=1", "name=\"x\""),
       "has its own"},
      {"train.global_batch",
       {"train.global_batch=32"},
       phases("global_batch=16", "global_batch=16"),
       phases("global_batch=16", "name=\"x\""),
       "has its own"},
      {"train.phases.learning_rate",
       {"train.phases.1.learning_rate=1e-3"},
       phases("name=\"x\"", "name=\"y\""),
       phases("name=\"x\"", "name=\"y\", warmup_steps=1"),
       "one step"},
      {"train.phases.minimum_learning_rate",
       {"train.phases.1.minimum_learning_rate=1e-5"},
       phases("name=\"x\"", "schedule=\"constant\""),
       phases("name=\"x\"", "schedule=\"linear\""),
       "the schedule is \"constant\""},
      {"train.phases.schedule",
       {"train.phases.1.schedule=linear"},
       phases("name=\"x\"", "warmup_steps=1"),
       phases("name=\"x\"", "name=\"y\""),
       "the warm-up takes all"},
      {"train.tf32", {"train.tf32=true"}, {}, {"run.device=cuda"}, "\"cpu\""},
      {"train.seed", {"train.seed=5"}, {"checkpoint.initial=a"}, {}, "checkpoint.initial"},
      {"train.evaluate_batches",
       {"train.evaluate_batches=8"},
       {},
       {"train.evaluate_every=10"},
       "evaluate_every is 0"},
      {"parallel.expert_exchange",
       {"parallel.expert_exchange=all_gather"},
       {},
       {"parallel.expert=2"},
       "parallel.expert is 1",
       2,
       2},
      {"parallel.expert_rows_bound",
       {"parallel.expert_rows_bound=2"},
       {"parallel.expert=2"},
       {"parallel.expert=4"},
       "2 times the rows",
       4,
       4},
      {"parallel.capacity_tokens",
       {"parallel.capacity_tokens=rank"},
       {},
       {"model.capacity_factor=1.5"},
       "capacity_factor is 0",
       2,
       2},
      {"parallel.schedule",
       {"parallel.schedule=gpipe"},
       {},
       {"parallel.pipeline=2"},
       "the model is one chunk",
       2,
       2},
      {"parallel.consecutive_micro_batches",
       {"parallel.consecutive_micro_batches=2"},
       {"parallel.pipeline=2", "parallel.virtual_stages=2"},
       {"parallel.virtual_stages=2", "parallel.schedule=gpipe"},
       "the schedule is \"interleaved\"",
       2,
       1},
      {"parallel.stage_layers",
       {"parallel.stage_layers=[7, 9]"},
       {},
       {"parallel.pipeline=2"},
       "the model is one chunk",
       1,
       2},
      {"parallel.levels", {"parallel.levels=[2]"}, {}, {}, "one rank", 1, 2},
      {"parallel.overlap", {"parallel.overlap=false"}, {}, {}, "one rank", 1, 2},
      {"parallel.overlap_memory",
       {"parallel.overlap_memory=\"1 GiB\""},
       {"parallel.overlap=false"},
       {},
       "parallel.overlap is false",
       2,
       2},
      {"shard.weights", {"shard.weights=all"}, {}, {}, "one rank", 1, 2},
      {"shard.gradients", {"shard.gradients=2"}, {}, {}, "one rank", 1, 2},
      {"shard.optimizer", {"shard.optimizer=all"}, {}, {}, "one rank", 1, 2},
      {"shard.gradients_wire", {"shard.gradients_wire=bf16"}, {}, {}, "one rank", 1, 2},
      {"shard.secondary",
       {"shard.secondary=2"},
       {"shard.optimizer=all", "shard.gradients=all", "shard.weights=all",
        "shard.gather_again=false"},
       {"shard.optimizer=all", "shard.gradients=all", "shard.weights=all"},
       "shard.gather_again is false",
       2,
       2},
      {"shard.gather_again",
       {"shard.gather_again=false"},
       {},
       {"shard.optimizer=all", "shard.gradients=all", "shard.weights=all"},
       "shard.weights is \"none\"",
       2,
       2},
      {"shard.weights_wire",
       {"shard.weights_wire=int8"},
       {"shard.optimizer=all"},
       {"shard.optimizer=all", "shard.gradients=all", "shard.weights=all"},
       "shard.weights is \"none\"",
       2,
       2},
      {"shard.secondary_wire",
       {"shard.secondary_wire=int8"},
       {"shard.optimizer=all", "shard.gradients=all", "shard.weights=all"},
       {"shard.optimizer=all", "shard.gradients=all", "shard.weights=all", "shard.secondary=2"},
       "shard.secondary is \"none\"",
       2,
       2},
      {"shard.gradients_by_level",
       {"shard.gradients_by_level=false"},
       {},
       {"parallel.levels=[2]"},
       "one level of the network",
       4,
       4},
      {"shard.expert_aware",
       {"shard.expert_aware=false"},
       kExperts,
       {"model.family=olmoe", "parallel.expert=2", "shard.optimizer=all"},
       "parallel.expert is 1",
       2,
       2},
      {"shard.block",
       {"shard.block=64"},
       {"shard.gradients_wire=bf16"},
       {"shard.gradients_wire=int4"},
       "nothing travels as integers",
       2,
       2},
      {"shard.error_feedback",
       {"shard.error_feedback=0.8"},
       {"shard.gradients_wire=int4"},
       {"shard.gradients_wire=int4", "shard.optimizer=all", "shard.gradients=all"},
       "shard.gradients is \"none\"",
       2,
       2},
      {"optimizer.learning_rate",
       {"optimizer.learning_rate=1e-3"},
       kOneStep,
       {},
       "the schedule of one step"},
      {"optimizer.minimum_learning_rate",
       {"optimizer.minimum_learning_rate=4e-5"},
       kConstant,
       {},
       "\"constant\""},
      {"optimizer.schedule",
       {"optimizer.schedule=linear"},
       {"train.steps=20", "optimizer.warmup_steps=20"},
       {},
       "all 20 steps"},
      {"optimizer.warmup_steps",
       {"optimizer.warmup_steps=5"},
       phases("warmup_steps=4", "name=\"x\""),
       phases("name=\"x\"", "warmup_steps=1"),
       "has its own"},
      {"optimizer.decay_rule",
       {"optimizer.decay_rule=all"},
       {"optimizer.weight_decay=0"},
       {},
       "weight_decay is 0"},
      {"optimizer.clip_norm",
       {"optimizer.clip_norm=2"},
       {"train.steps=20", "train.stop_after=5", "optimizer.warmup_steps=20",
        "optimizer.clip_after_warmup=true"},
       {},
       "warm-up never ends"},
      {"optimizer.clip_after_warmup",
       {"optimizer.clip_after_warmup=true"},
       {"optimizer.warmup_steps=0"},
       {},
       "no warm-up"},
      {"optimizer.muon_momentum", {"optimizer.muon_momentum=0.9"}, {}, kMuon, "\"adamw\""},
      {"optimizer.muon_steps", {"optimizer.muon_steps=5"}, {}, kMuon, "\"adamw\""},
      {"optimizer.muon_split",
       {"optimizer.muon_split=blocks"},
       kMuon,
       {"optimizer.name=muon", "parallel.tensor=2"},
       "parallel.tensor is 1",
       2,
       2},
      {"checkpoint.keep_every",
       {"checkpoint.every=20", "checkpoint.keep_every=40"},
       {"train.steps=30"},
       {},
       "after step 30"}};
  return all;
}

/// What is said of a run with these overrides. Those of `base` come first: they make the tables
/// that those of `set` reach.
std::vector<std::string> said(const std::vector<std::string>& base,
                              const std::vector<std::string>& set, int ranks) {
  std::vector<std::string> overrides = base;
  overrides.insert(overrides.end(), set.begin(), set.end());
  const RunConfig config = parse("", overrides);
  const std::vector<int64_t>& levels = config.parallel.levels;
  const int node = levels.empty() ? ranks : std::min(ranks, static_cast<int>(levels.front()));
  const Mesh mesh({.data = {node, std::max(1, ranks / node)}});
  return without_effect(config, &mesh);
}

/// The sentence about a key; empty if there is none.
std::string about(const std::vector<std::string>& sentences, const std::string& key) {
  for (const std::string& sentence : sentences) {
    const size_t end = sentence.find(" no effect: ");
    if (sentence.substr(0, end).find(key) != std::string::npos) return sentence;
  }
  return "";
}

TEST(Effects, KeysThatAreSetInVainAreNamedWithTheReason) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.key);
    const std::string name = example.key.substr(example.key.rfind('.') + 1);
    EXPECT_THAT(about(said(example.vain, example.set, example.ranks), name),
                HasSubstr(example.why));
    EXPECT_EQ(about(said(example.useful, example.set, example.useful_ranks), name), "");
  }
}

/// So nobody can add a key and its condition without an example of both.
TEST(Effects, EveryKeyWithAConditionHasAnExample) {
  std::set<std::string> conditional;
  for (const ConfigSection& section : all_sections()) {
    const auto note = [&](const std::string& prefix, const std::vector<Key>& keys) {
      for (const Key& key : keys) {
        if (key.effect.why_none != effects::always) conditional.insert(prefix + key.name);
      }
    };
    note(section.name + ".", section.keys);
    for (const TableList& list : section.lists) {
      note(section.name + "." + list.name + ".", list.keys(0));
    }
  }
  std::set<std::string> exemplified;
  for (const Example& example : examples()) exemplified.insert(example.key);
  EXPECT_EQ(conditional, exemplified);
}

TEST(Effects, OneSentenceNamesAllKeysOfAReason) {
  EXPECT_THAT(said({}, {"optimizer.muon_steps=7", "optimizer.muon_momentum=0.9"}, 1),
              ElementsAre("optimizer.muon_momentum and optimizer.muon_steps have no effect: "
                          "optimizer.name is \"adamw\""));
}

TEST(Effects, ConsecutiveMicroBatchesSayWhichOfTheirConditionsFails) {
  const std::vector<std::string> set{"parallel.consecutive_micro_batches=2"};
  const auto why = [&](const std::vector<std::string>& base) {
    return about(said(base, set, 2), "consecutive_micro_batches");
  };
  EXPECT_THAT(why({"parallel.schedule=gpipe"}), HasSubstr("the model is one chunk"));
  EXPECT_THAT(why({"parallel.pipeline=2", "parallel.schedule=zb-v"}),
              HasSubstr("parallel.schedule is \"zb-v\""));
  EXPECT_THAT(why({"parallel.pipeline=2", "parallel.schedule=a/file"}),
              HasSubstr("parallel.schedule is \"a/file\""));
  EXPECT_THAT(why({"parallel.pipeline=2", "parallel.schedule=flexible"}),
              HasSubstr("parallel.virtual_stages is 1"));
}

TEST(Effects, NothingIsSaidOfKeysThatAreNotSetOrAskForNothing) {
  for (const std::string& family : words_of<Family>()) {
    EXPECT_THAT(said({"model.family=" + family}, {}, 1), IsEmpty()) << family;
  }
  EXPECT_THAT(said(kDense,
                   {"model.capacity_factor=0", "model.balance_coefficient=0", "run.trace_step=0",
                    "parallel.expert_exchange=auto", "shard.optimizer=none",
                    "run.deterministic=true", "train.tf32=false"},
                   1),
              IsEmpty());
  EXPECT_THAT(said(phases("schedule=\"constant\", minimum_learning_rate=0.1", "name=\"x\""),
                   {"train.phases=[]"}, 1),
              IsEmpty());
}

/// What a run writes lists every key. Reading it back says no more than the user's own file.
TEST(Effects, NothingIsSaidOfAWrittenConfiguration) {
  const Mesh one_rank;
  for (const std::string& family : words_of<Family>()) {
    const std::string text = to_toml(parse("", {"model.family=" + family}));
    EXPECT_THAT(text, HasSubstr("# muon_steps = 5  (no effect: optimizer.name is \"adamw\")"));
    EXPECT_THAT(without_effect(parse(text), &one_rank), IsEmpty()) << family;
  }
  const RunConfig vain = parse("", {"optimizer.muon_steps=7"});
  EXPECT_EQ(without_effect(parse(to_toml(vain)), &one_rank), without_effect(vain, &one_rank));
}

}  // namespace
}  // namespace tessera
