#include "config/shard_groups.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"
#include "config/effects.h"
#include "config/mesh_of.h"
#include "state/shard_axes.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A model with experts that divides over many ranks.
RunConfig sharded(const std::vector<std::string>& keys) {
  return parse(
      "[model]\nfamily = 'olmoe'\nexperts = 16\nexperts_per_token = 2\nexpert_size = 32\n"
      "layers = 4\nhidden_size = 64\nheads = 16\nkv_heads = 16\nvocabulary_size = 128\n"
      "[data]\ncontext = 64\n[train]\nmicro_batch = 1\nglobal_batch = 48\n",
      keys);
}

std::string mesh_text(const std::vector<std::string>& keys, int ranks) {
  return mesh_of(sharded(keys), ranks).text();
}

std::string mesh_error(const std::vector<std::string>& keys, int ranks) {
  return error_of([&] { mesh_of(sharded(keys), ranks); });
}

TEST(ShardGroups, GiveTheDataAxisALevelForANumberOfRanks) {
  EXPECT_EQ(mesh_text({"shard.optimizer=4"}, 16), "4 data.0 x 4 data.1");
  EXPECT_EQ(mesh_text({"shard.weights=2", "shard.gradients=4", "shard.optimizer=8"}, 16),
            "2 data.0 x 2 data.1 x 2 data.2 x 2 data.3");
  EXPECT_EQ(mesh_text({"shard.weights=4", "shard.gradients=4", "shard.optimizer=4"}, 16),
            "4 data.0 x 4 data.1");
  EXPECT_EQ(mesh_text({"shard.optimizer=16"}, 16), "16 data") << "all of them";
  EXPECT_EQ(mesh_text({"shard.optimizer=1"}, 16), "16 data");
  EXPECT_EQ(mesh_text({"shard.optimizer=4", "parallel.levels=[2, 4]"}, 16),
            "2 data.0 x 2 data.1 x 2 data.2 x 2 data.3")
      << "two pairs, within a node of four";
  EXPECT_EQ(mesh_text({"shard.optimizer=8", "parallel.levels=[4]"}, 16),
            "4 data.0 x 2 data.1 x 2 data.2")
      << "two nodes";
  EXPECT_EQ(mesh_text({"shard.optimizer=4", "parallel.levels=[4]"}, 16), "4 data.0 x 4 data.1");
}

/// The number counts the ranks that hold the same weights.
TEST(ShardGroups, AreOfRanksThatHoldTheSameWeights) {
  EXPECT_EQ(mesh_text({"shard.optimizer=2", "parallel.tensor=2"}, 16),
            "2 tensor x 2 data.0 x 4 data.1");
  EXPECT_EQ(mesh_text({"shard.optimizer=2", "parallel.pipeline=2"}, 16),
            "2 pipeline x 2 data.0 x 4 data.1");
  EXPECT_EQ(mesh_text({"shard.optimizer=4", "parallel.context=2", "parallel.tensor=2"}, 16),
            "2 tensor x 2 context x 2 data.0 x 2 data.1");
  const Mesh context = mesh_of(sharded({"shard.optimizer=2", "parallel.context=2"}), 8);
  EXPECT_EQ(context.text(), "2 context x 4 data.1") << "so that experts have a level for it too";
  EXPECT_EQ(context.size(context.expert_data()[0]), 2);
  const RunConfig config = sharded(
      {"shard.weights=2", "shard.gradients=4", "shard.optimizer='all'", "parallel.tensor=2"});
  const Mesh mesh = mesh_of(config, 16);
  EXPECT_EQ(shard_axes(config.shard, mesh), (ShardAxes{2, 3, 4}));
  EXPECT_THAT(std::vector<MeshLevel>(mesh.levels().begin(), mesh.levels().end()),
              ElementsAre(MeshLevel{"group.4", 4}, MeshLevel{"group.8", 8}, MeshLevel{"node", 16},
                          MeshLevel{"all", 16}));
}

TEST(ShardGroups, ThatCutLevelsAreRefused) {
  EXPECT_THAT(
      mesh_error({"shard.optimizer=3"}, 16),
      AllOf(HasSubstr("shard.optimizer (3): a group of 3 of the 16 ranks that hold the same "
                      "weights does not nest with all 16"),
            HasSubstr("choose one of 1, 2, 4, 8, 16")));
  EXPECT_THAT(mesh_error({"shard.optimizer=4", "parallel.levels=[6]"}, 24),
              AllOf(HasSubstr("the level \"node\" of 6 ranks"),
                    HasSubstr("choose one of 1, 2, 3, 6, 12, 24")));
  EXPECT_THAT(
      mesh_error({"shard.weights=2", "shard.gradients=6", "shard.optimizer=8"}, 48),
      AllOf(HasSubstr("shard.optimizer (8)"), HasSubstr("the level \"group.6\" of 6 ranks")));
  EXPECT_THAT(mesh_error({"shard.optimizer=6", "parallel.context=4"}, 48),
              AllOf(HasSubstr("parallel.context (4)"), HasSubstr("choose one of 1, 4, 8, 12")));
  EXPECT_THAT(mesh_error({"shard.optimizer=32", "parallel.tensor=2"}, 16),
              AllOf(HasSubstr("a group of 32 of the 8 ranks"),
                    HasSubstr("where 2 ranks (tensor, pipeline) hold one copy"),
                    HasSubstr("choose one of 1, 2, 4, 8")));
}

TEST(ShardGroups, AreOfTheLevelsOfTheRun) {
  EXPECT_THAT(mesh_error({"shard.optimizer='pair'"}, 8),
              HasSubstr("shard.optimizer is \"pair\", and the levels of this run's network are "
                        "\"node\", \"all\""));
  EXPECT_EQ(mesh_text({"shard.optimizer='pair'", "parallel.levels=[2, 2]"}, 8),
            "2 data.0 x 2 data.1 x 2 data.2");
  EXPECT_EQ(mesh_text({"shard.optimizer='node'"}, 8), "8 data") << "threads have one machine";
  const std::vector<MeshLevel> no_nodes;
  EXPECT_THAT(error_of([&] { mesh_of(sharded({"shard.optimizer='node'"}), 8, no_nodes); }),
              HasSubstr("the levels of this run's network are \"all\""));
  EXPECT_THAT(mesh_error({"shard.weights='all'"}, 8),
              HasSubstr("the dependency rule (ZeRO-topo, section V)"));
}

/// What a model that does not train would cut is nothing.
TEST(ShardGroups, AreNotAskedForWhereNothingTrains) {
  EXPECT_EQ(mesh_for_inference(sharded({"shard.weights='pair'", "shard.optimizer=5"}), 4).text(),
            "4 data");
}

TEST(ShardGroups, AreRefusedAsKeysBeforeThereAreRanks) {
  EXPECT_THAT(error_of([] { sharded({"shard.weights=0"}); }),
              AllOf(HasSubstr("shard.weights"), HasSubstr("found 0"),
                    HasSubstr("\"none\", \"all\""), HasSubstr("a whole number from 1 to 1048576")));
  EXPECT_THAT(error_of([] { sharded({"shard.weights=''"}); }), HasSubstr("found \"\""));
  EXPECT_THAT(error_of([] { sharded({"shard.weights=[2]"}); }), HasSubstr("found [2]"));
  EXPECT_EQ(sharded({"shard.weights=2"}).shard.weights, (ShardPlacement{.ranks = 2}));
  EXPECT_EQ(sharded({"shard.weights=node"}).shard.weights, (ShardPlacement{.level = "node"}));
}

std::vector<std::string> said(const std::vector<std::string>& keys, int ranks) {
  const RunConfig config = sharded(keys);
  const Mesh mesh = mesh_of(config, ranks);
  std::vector<std::string> result;
  for (const std::string& sentence : without_effect(config, &mesh)) {
    if (sentence.starts_with("shard.")) result.push_back(sentence);
  }
  return result;
}

TEST(ShardGroups, ThatCutNothingAreNamed) {
  EXPECT_THAT(said({"shard.optimizer='all'"}, 2), IsEmpty());
  EXPECT_THAT(said({"shard.optimizer='none'"}, 1), IsEmpty());
  EXPECT_THAT(said({"shard.optimizer=4"}, 1), ElementsAre(HasSubstr("the run has one rank")));
  EXPECT_THAT(said({"shard.optimizer=1"}, 2),
              ElementsAre(HasSubstr("no effect: a group of one rank has all of it")));
  EXPECT_THAT(said({"shard.optimizer='node'", "parallel.levels=[2]", "parallel.tensor=4",
                    "parallel.expert=4"},
                   8),
              ElementsAre("shard.optimizer has no effect: no two ranks of a group of the level "
                          "\"node\" hold the same weights"));
  EXPECT_THAT(said({"shard.optimizer='all'", "parallel.tensor=4", "parallel.expert=4"}, 4),
              ElementsAre(HasSubstr("no two ranks of the run (4 tensor, 4 expert) hold the same")));
  EXPECT_THAT(said({"shard.optimizer='all'", "parallel.tensor=4"}, 4), IsEmpty())
      << "each has all experts";
}

}  // namespace
}  // namespace tessera
