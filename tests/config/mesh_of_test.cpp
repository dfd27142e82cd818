#include "config/mesh_of.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/processes.h"
#include "config/config_test_support.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A dense model whose sizes divide by 12, or one with experts.
RunConfig layout(const std::vector<std::string>& keys, bool experts = false) {
  const std::string model = experts
                                ? "[model]\nfamily = 'olmoe'\nexperts = 6\nexperts_per_token = 2\n"
                                  "expert_size = 20\nshared_experts = 1\n"
                                : "[model]\nfamily = 'llama'\nfeed_forward_size = 48\n";
  return parse(model +
                   "layers = 2\nhidden_size = 96\nheads = 12\nkv_heads = 4\n"
                   "vocabulary_size = 120\n"
                   "[data]\ncontext = 96\n"
                   "[train]\nmicro_batch = 2\nglobal_batch = 24\n",
               keys);
}

std::string refusal(const std::vector<std::string>& keys, int ranks, bool experts = false) {
  return error_of([&] { mesh_of(layout(keys, experts), ranks); });
}

/// Whether the layout is taken.
bool taken(const std::vector<std::string>& keys, int ranks) {
  return mesh_of(layout(keys), ranks).ranks() == ranks;
}

TEST(MeshOf, GivesDataTheRanksThatAreLeft) {
  const Mesh mesh = mesh_of(layout({"parallel.tensor=2", "parallel.context=3"}), 24);
  EXPECT_EQ(mesh.text(), "2 tensor x 3 context x 4 data");
  EXPECT_EQ(data_ranks(mesh), 4);
  EXPECT_EQ(mesh_of(layout({}), 1).ranks(), 1);
  const Mesh experts = mesh_of(layout({"parallel.expert=3"}, true), 6);
  EXPECT_EQ(experts.size(experts.expert()), 3);
  EXPECT_EQ(experts.size(experts.expert_data()[0]), 2);
}

TEST(MeshOf, GivesTheDataAxisTheLevelsOfTheNetwork) {
  const auto text = [](const std::vector<std::string>& keys, int ranks) {
    return mesh_of(layout(keys), ranks).text();
  };
  EXPECT_EQ(text({"parallel.tensor=2", "parallel.levels=[4]"}, 8),
            "2 tensor x 2 data.0 x 2 data.1");
  EXPECT_EQ(text({"parallel.tensor=4", "parallel.levels=[2]"}, 8), "4 tensor x 2 data.1");
  EXPECT_EQ(text({"parallel.levels=[1]"}, 4), "4 data.1");
  EXPECT_EQ(text({"parallel.tensor=2", "parallel.levels=[8]"}, 8), "2 tensor x 4 data");
  EXPECT_EQ(text({"parallel.levels=[2, 3]"}, 12), "2 data.0 x 3 data.1 x 2 data.2");
  EXPECT_EQ(text({"parallel.levels=[2, 6]"}, 12), "2 data.0 x 6 data.1") << "one node";
  EXPECT_EQ(text({"parallel.tensor=2", "parallel.levels=[2, 3]"}, 12),
            "2 tensor x 3 data.1 x 2 data.2");
  EXPECT_THAT(refusal({"parallel.levels=[3]"}, 4),
              HasSubstr("parallel.levels ([3]): the 3 ranks of a node do not divide the 4 ranks"));
  EXPECT_THAT(refusal({"parallel.tensor=3", "parallel.levels=[2, 3]"}, 12),
              AllOf(HasSubstr("parallel.levels ([2, 3]): of the 2 ranks of a pair and the 3 ranks"),
                    HasSubstr("[12] to sum gradients in one step")));
}

TEST(MeshOf, NamesTheLevelsThatTheKeyLists) {
  const auto levels = [](const std::vector<std::string>& keys, int ranks) {
    const Mesh mesh = mesh_of(layout(keys), ranks);
    std::vector<std::string> result;
    for (const MeshLevel& level : mesh.levels()) {
      result.push_back(fmt::format("{} {}", level.name, level.ranks));
    }
    return result;
  };
  EXPECT_THAT(levels({}, 12), ElementsAre("node 12", "all 12"));
  EXPECT_THAT(levels({"parallel.levels=[2, 3]"}, 12), ElementsAre("pair 2", "node 6", "all 12"));
  EXPECT_THAT(levels({"parallel.levels=[3, 2, 2]"}, 12),
              ElementsAre("group.3 3", "group.6 6", "node 12", "all 12"));
  EXPECT_THAT(levels({"parallel.tensor=4", "parallel.levels=[2]"}, 12),
              ElementsAre("node 2", "all 12"));
}

TEST(MeshOf, RefusesALevelOfOneGroup) {
  EXPECT_THAT(error_of([] { layout({"parallel.levels=[2, 1]"}); }),
              HasSubstr("parallel.levels ([2, 1]): a group of one group is no level of its own; "
                        "leave out the 1"));
}

/// The levels that were found are of one start, and the key, which is the user's, comes first.
TEST(MeshOf, TakesTheLevelsThatWereFoundWhereTheKeyIsNotSet) {
  const std::vector<MeshLevel> found{{"package", 3}, {"node", 6}};
  EXPECT_EQ(mesh_of(layout({}), 12, found).text(), "3 data.0 x 2 data.1 x 2 data.2");
  EXPECT_EQ(mesh_of(layout({"parallel.levels=[4]"}), 12, found).text(), "4 data.0 x 3 data.1");
  EXPECT_EQ(mesh_of(layout({"parallel.levels=[12]"}), 12, found).text(), "12 data");
}

/// An evaluation sums no gradients, and may have fewer ranks than a node of the training.
TEST(MeshOf, OfAModelThatDoesNotTrainHasNoLevels) {
  const RunConfig config = layout({"parallel.levels=[4]"});
  EXPECT_EQ(mesh_for_inference(config, 1).ranks(), 1);
  EXPECT_EQ(mesh_for_inference(config, 8).text(), "8 data");
}

/// Its [parallel] may be one for another model, which validate() has not seen with this one.
TEST(MeshOf, OfAModelThatDoesNotTrainSuitsItsLayers) {
  RunConfig config = layout({});
  config.parallel = parse_parallel("[parallel]\npipeline = 2\nstage_layers = [3, 4]", "test.toml");
  EXPECT_THAT(
      error_of([&] { mesh_for_inference(config, 2); }),
      HasSubstr(fmt::format("add up to 7; expected model.layers ({})", config.model.layers)));
  config.model.layers = 7;
  EXPECT_EQ(mesh_for_inference(config, 2).text(), "2 pipeline");
}

TEST(MeshOf, OfOneRankNamesTheKeysThatAskForSeveral) {
  const auto refusal_of = [](const std::vector<std::string>& keys) {
    return error_of([&] { mesh_of_one_rank(layout(keys)); });
  };
  EXPECT_EQ(mesh_of_one_rank(layout({})).ranks(), 1);
  EXPECT_EQ(refusal_of({"parallel.pipeline=2"}),
            "test.toml: parallel.pipeline (2): this command runs one rank; set it to 1");
  EXPECT_EQ(refusal_of({"parallel.context=2", "parallel.tensor=4"}),
            "test.toml: parallel.tensor (4) and parallel.context (2): this command runs one rank; "
            "set them to 1");
}

/// Processes of which no more is known than their machines.
class NamedProcesses final : public Processes {
 public:
  NamedProcesses(std::vector<std::string> hosts, int rank)
      : hosts_(std::move(hosts)), rank_(rank) {}
  int rank() const override { return rank_; }
  std::span<const std::string> hosts() const override { return hosts_; }
  std::vector<RankPlace> places() override {
    std::vector<RankPlace> result;
    for (const std::string& host : hosts_) result.push_back({host});
    return result;
  }
  void set_timeout(std::chrono::milliseconds) override {}
  std::unique_ptr<Transport> transport(std::span<const int>, std::string_view) override {
    throw Error("they do not meet");
  }
  void end_work(std::string_view) override {}
  std::chrono::milliseconds timeout() const override { return {}; }
  Report report_end(std::string_view, std::chrono::milliseconds) override { return Report::none; }
  bool all_ended() const override { return true; }
  [[noreturn]] void abort(int) override { std::abort(); }

 private:
  std::vector<std::string> hosts_;
  int rank_;
};

/// What a run says of its nodes, and its mesh. The names are those of each rank's machine.
struct OfRun {
  OfRun(const std::vector<std::string>& keys, const std::vector<std::string>& machines,
        int rank = 0) {
    NamedProcesses processes(machines, rank);
    const auto note = [&](const std::string& sentence) { said.push_back(sentence); };
    mesh = mesh_of_started_ranks(layout(keys, true), &processes, 1, note).text();
  }
  std::string mesh;
  std::vector<std::string> said;
};

TEST(MeshOf, OfProcessesHasTheNodesOfTheirMachines) {
  const std::vector<std::string> two_nodes{"a", "a", "a", "b", "b", "b"};
  const OfRun found({}, two_nodes);
  EXPECT_EQ(found.mesh, "3 data.0 x 2 data.1");
  EXPECT_THAT(found.said, IsEmpty());
  EXPECT_EQ(OfRun({}, {"a", "a", "a"}).mesh, "3 data");
  EXPECT_EQ(OfRun({"parallel.levels=[6]"}, two_nodes).mesh, "6 data");
  const OfRun in_turns({}, {"a", "b", "a", "b"});
  EXPECT_EQ(in_turns.mesh, "4 data");
  EXPECT_THAT(in_turns.said,
              ElementsAre(HasSubstr("summed over all machines in one step: rank 2 is on a")));
  EXPECT_THAT(OfRun({}, {"a", "b", "a", "b"}, 1).said, IsEmpty()) << "one rank says it for all";
  EXPECT_THAT(OfRun({"parallel.levels=[4]"}, {"a", "b", "a", "b"}).said, IsEmpty());
}

TEST(MeshOf, SaysWhatOfTheGradientsIsNotSummedByNode) {
  const OfRun experts({"parallel.expert=2"}, {"a", "a", "a", "b", "b", "b"});
  EXPECT_EQ(experts.mesh, "3 data.0 x 2 data.1, 2 expert");
  EXPECT_THAT(experts.said, ElementsAre(HasSubstr("parallel.expert is 2, and a node has 3 ranks")));
  const OfRun model({"parallel.tensor=4"}, {"a", "a", "b", "b", "c", "c", "d", "d"});
  EXPECT_EQ(model.mesh, "4 tensor x 2 data.1");
  EXPECT_THAT(model.said, ElementsAre(HasSubstr("4 ranks share a model, and a node has 2")));
  std::vector<std::string> of_threads;
  mesh_of_started_ranks(layout({"parallel.levels=[3]", "parallel.expert=2"}, true), nullptr, 6,
                        [&](const std::string& sentence) { of_threads.push_back(sentence); });
  EXPECT_EQ(of_threads, experts.said);
}

TEST(MeshOf, NamesTheSizesThatDoNotDivideTheRanks) {
  EXPECT_THAT(refusal({"parallel.tensor=2", "parallel.context=2"}, 6),
              AllOf(HasSubstr("parallel.tensor (2) * parallel.context (2)"),
                    HasSubstr("is 4, which does not divide --ranks (6)")));
  EXPECT_EQ(refusal({"parallel.tensor=2"}, 1),
            "test.toml: parallel.tensor (2) does not divide --ranks (1); give --ranks a multiple "
            "of 2, or "
            "change parallel.tensor");
  EXPECT_THAT(refusal({}, 0), HasSubstr("--ranks is 0"));
  EXPECT_THAT(refusal({"parallel.expert=3"}, 4, true),
              HasSubstr("parallel.expert (3) does not divide --ranks (4)"));
}

TEST(MeshOf, NamesWhatOfTheModelDoesNotDivide) {
  EXPECT_THAT(refusal({"parallel.tensor=5"}, 5),
              AllOf(HasSubstr("parallel.tensor (5) does not divide model.heads (12)"),
                    HasSubstr("parallel.tensor (5) and model.kv_heads (4): neither divides"),
                    HasSubstr("data.context (96)")));
  EXPECT_TRUE(taken({"parallel.tensor=4", "model.vocabulary_size=122"}, 4)) << "uneven pieces";
  EXPECT_THAT(refusal({"parallel.tensor=12", "model.vocabulary_size=11"}, 12),
              HasSubstr("parallel.tensor (12) is more than model.vocabulary_size (11)"));
  EXPECT_THAT(refusal({"parallel.tensor=12", "model.feed_forward_size=7"}, 12),
              HasSubstr("parallel.tensor (12) is more than model.feed_forward_size (7)"));
  EXPECT_TRUE(taken({"parallel.tensor=12"}, 12)) << "more ranks than key heads";
  EXPECT_THAT(refusal({"parallel.tensor=4", "model.expert_size=3"}, 4, true),
              HasSubstr("model.shared_experts * model.expert_size (3)"));
  EXPECT_THAT(refusal({"parallel.expert=4"}, 4, true),
              HasSubstr("parallel.expert (4) does not divide model.experts (6)"));
  EXPECT_THAT(refusal({"parallel.expert=2"}, 2), HasSubstr("the model has no experts"));
}

TEST(MeshOf, SplitsContextsInZigzagAndThenOverTensorRanks) {
  EXPECT_TRUE(taken({"parallel.context=3"}, 3));
  EXPECT_THAT(refusal({"parallel.context=5"}, 5),
              AllOf(HasSubstr("data.context (96)"), HasSubstr("parallel.context (5)"),
                    HasSubstr("a multiple of 10")));
  EXPECT_THAT(refusal({"parallel.context=3", "data.context=51"}, 3), HasSubstr("multiple of 6"));
  EXPECT_THAT(refusal({"parallel.context=2", "parallel.tensor=4", "data.context=100"}, 8),
              HasSubstr("a multiple of 16"));
}

TEST(MeshOf, CountsTheChoicesOfAllRanksIn32Bits) {
  const std::vector<std::string> keys{"data.context=1048576", "train.micro_batch=16",
                                      "train.global_batch=1024"};
  // Two experts for each of 2^24 tokens of a rank.
  EXPECT_NO_THROW(mesh_of(layout(keys, true), 32));
  EXPECT_NO_THROW(mesh_of(layout(keys), 64));  // without experts
  EXPECT_THAT(refusal(keys, 64, true),
              AllOf(HasSubstr("train.micro_batch (16) * 64 data-parallel ranks"),
                    HasSubstr("is 2147483648; it must be less than 2147483648")));
}

TEST(MeshOf, KnowsHowManyDataRanksAreOne) {
  EXPECT_EQ(data_ranks_text(1), "1 data-parallel rank");
  EXPECT_EQ(data_ranks_text(2), "2 data-parallel ranks");
}

TEST(MeshOf, ChecksTheBoundOfRowsWithoutExpertRanksToo) {
  EXPECT_THAT(error_of([] { layout({"parallel.expert_rows_bound=0.5"}); }),
              HasSubstr("parallel.expert_rows_bound (0.5): an even load would exceed it"));
  EXPECT_NO_THROW(layout({"parallel.expert_rows_bound=1"}));
}

TEST(MeshOf, GivesEachDataRankWholeMicroBatches) {
  EXPECT_TRUE(taken({}, 12));
  EXPECT_THAT(refusal({}, 8),
              AllOf(HasSubstr("train.micro_batch (2) * 8 data-parallel ranks is 16"),
                    HasSubstr("train.global_batch (24)")));
}

}  // namespace
}  // namespace tessera
