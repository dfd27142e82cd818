#include "config/node_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FoundNodes found(const std::vector<std::string>& machines, int64_t tensor = 1) {
  return find_nodes({.tensor = tensor}, machines);
}

TEST(NodeRanks, AreReadFromTheNamesOfMachines) {
  const auto ranks = [](const std::vector<std::string>& machines, int64_t tensor = 1) {
    const FoundNodes nodes = found(machines, tensor);
    EXPECT_EQ(nodes.why_not, "");
    return nodes.ranks;
  };
  EXPECT_EQ(ranks({"a", "a", "b", "b"}), 2);
  EXPECT_EQ(ranks({"a", "b", "c"}), 1);
  EXPECT_EQ(ranks({"a", "a", "a", "a"}), 4);
  EXPECT_EQ(ranks({"a", "a", "b", "b"}, 4), 2);
  EXPECT_EQ(ranks({}), 0);
}

TEST(NodeRanks, AreAllRanksWhereMachinesAreNoNodes) {
  const auto in_one_step = [&](const std::vector<std::string>& machines, const char* why,
                               int64_t tensor = 1) {
    const FoundNodes nodes = found(machines, tensor);
    EXPECT_EQ(nodes.ranks, std::ssize(machines));
    EXPECT_THAT(nodes.why_not, HasSubstr(why));
  };
  in_one_step({"a", "b", "a", "b"}, "rank 2 is on a");
  in_one_step({"a", "a", "b", "c"}, "rank 3 is on c");
  in_one_step({"a", "a", "b", "b", "b", "c"}, "rank 4 is on b");
  in_one_step({"a", "a", "b"}, "the last machine has 1 ranks, and the others 2");
  in_one_step({"a", "a", "b", "b", "c", "c"}, "3 ranks share a model, and a machine has 2", 3);
}

TEST(NodeRanks, GiveTheDataAxisTwoLevels) {
  EXPECT_THAT(data_levels({.tensor = 2}, 8, 4), ElementsAre(2, 2));
  EXPECT_THAT(data_levels({.tensor = 4}, 8, 2), ElementsAre(1, 2));
  EXPECT_THAT(data_levels({.tensor = 2}, 8, 0), ElementsAre(4));
  EXPECT_THAT(data_levels({.tensor = 2}, 8, 8), ElementsAre(4));
  EXPECT_THAT(error_of([] { data_levels({}, 4, 3); }), HasSubstr("does not divide the 4 ranks"));
  EXPECT_THAT(error_of([] { data_levels({.tensor = 3}, 12, 2); }),
              AllOf(HasSubstr("parallel.node_ranks (2) and the 3 ranks that share a model"),
                    HasSubstr("12 to sum gradients in one step")));
}

/// Where experts fill whole nodes, or nodes have whole groups of them, nothing is to be said.
TEST(NodeRanks, SayWhatIsNotSummedByNode) {
  EXPECT_THAT(sums_across_nodes({.expert = 2}, 8, 4), IsEmpty());
  EXPECT_THAT(sums_across_nodes({.tensor = 4, .expert = 8}, 16, 4), IsEmpty());
  EXPECT_THAT(sums_across_nodes({.tensor = 4, .expert = 4}, 12, 12), IsEmpty());
  EXPECT_THAT(sums_across_nodes({.tensor = 4, .expert = 4}, 12, 0), IsEmpty());
  EXPECT_THAT(sums_across_nodes({.tensor = 4}, 8, 2),
              ElementsAre(HasSubstr("4 ranks share a model, and a node has 2")));
  EXPECT_THAT(sums_across_nodes({.tensor = 6, .expert = 4}, 12, 6),
              ElementsAre(AllOf(HasSubstr("parallel.expert is 4, and a node has 6 ranks"),
                                HasSubstr("the gradients of experts are not summed by node"))));
}

/// Only the ranks of a stage sum gradients: the stages of a model may be on several nodes.
TEST(NodeRanks, CountTheRanksOfAStage) {
  EXPECT_THAT(data_levels({.tensor = 2, .pipeline = 2}, 16, 8), ElementsAre(2, 2));
  EXPECT_THAT(data_levels({.tensor = 2, .pipeline = 4}, 16, 4), ElementsAre(1, 2));
  EXPECT_THAT(sums_across_nodes({.tensor = 2, .pipeline = 4}, 16, 4), IsEmpty());
  EXPECT_THAT(sums_across_nodes({.tensor = 4, .pipeline = 2}, 16, 2),
              ElementsAre(HasSubstr("4 ranks share a stage of a model, and a node has 2")));
  EXPECT_THAT(sums_across_nodes({.pipeline = 2, .expert = 3}, 24, 12), IsEmpty());
  EXPECT_THAT(
      sums_across_nodes({.pipeline = 2, .expert = 4}, 24, 12),
      ElementsAre(HasSubstr("parallel.expert is 4, and a node has 6 ranks of a stage, of which")));
}

}  // namespace
}  // namespace tessera
