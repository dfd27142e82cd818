#include "config/mesh_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

TEST(MeshOf, GivesTheDataAxisTheLevelsOfItsNodes) {
  const auto text = [](const std::vector<std::string>& keys, int ranks) {
    return mesh_of(layout(keys), ranks).text();
  };
  EXPECT_EQ(text({"parallel.tensor=2", "parallel.node_ranks=4"}, 8),
            "2 tensor x 2 data.0 x 2 data.1");
  EXPECT_EQ(text({"parallel.tensor=4", "parallel.node_ranks=2"}, 8), "4 tensor x 2 data.1");
  EXPECT_EQ(text({"parallel.node_ranks=1"}, 4), "4 data.1");
  EXPECT_EQ(text({"parallel.tensor=2", "parallel.node_ranks=8"}, 8), "2 tensor x 4 data");
  EXPECT_THAT(refusal({"parallel.node_ranks=3"}, 4),
              HasSubstr("parallel.node_ranks (3) does not divide the 4 ranks"));
  EXPECT_THAT(refusal({"parallel.tensor=3", "parallel.node_ranks=2"}, 12),
              AllOf(HasSubstr("parallel.node_ranks (2) and the 3 ranks that share a model"),
                    HasSubstr("12 to sum gradients in one step")));
}

TEST(MeshOf, ReadsNodesFromTheNamesOfMachines) {
  const auto read = [](const std::vector<std::string>& machines, int64_t tensor = 1) {
    ParallelSection parallel{.tensor = tensor};
    const std::string why = set_node_ranks(parallel, machines);
    return std::pair(parallel.node_ranks, why);
  };
  using Found = std::pair<int64_t, std::string>;
  EXPECT_EQ(read({"a", "a", "b", "b"}), Found(2, ""));
  EXPECT_EQ(read({"a", "b", "c"}), Found(1, ""));
  EXPECT_EQ(read({"a", "a", "a", "a"}), Found(4, ""));
  EXPECT_EQ(read({"a", "a", "b", "b"}, 4), Found(2, ""));
  EXPECT_EQ(read({}), Found(0, ""));
  const auto in_one_step = [&](const std::vector<std::string>& machines, const char* why,
                               int64_t tensor = 1) {
    const Found found = read(machines, tensor);
    EXPECT_EQ(found.first, std::ssize(machines));
    EXPECT_THAT(found.second, HasSubstr(why));
  };
  in_one_step({"a", "b", "a", "b"}, "rank 2 is on a");
  in_one_step({"a", "a", "b", "c"}, "rank 3 is on c");
  in_one_step({"a", "a", "b", "b", "b", "c"}, "rank 4 is on b");
  in_one_step({"a", "a", "b"}, "the last machine has 1 ranks, and the others 2");
  in_one_step({"a", "a", "b", "b", "c", "c"}, "3 ranks share a model, and a machine has 2", 3);
  ParallelSection set{.node_ranks = 6};
  EXPECT_EQ(set_node_ranks(set, std::vector<std::string>{"a", "b"}), "");
  EXPECT_EQ(set.node_ranks, 6);
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
