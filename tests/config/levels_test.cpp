#include "config/levels.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The places of ranks on these machines, without what is within them.
std::vector<RankPlace> on(const std::vector<std::string>& machines) {
  std::vector<RankPlace> places;
  for (const std::string& machine : machines) places.push_back({machine});
  return places;
}

/// The levels that were found, each as "node 4".
std::vector<std::string> found(const std::vector<RankPlace>& places, int64_t tensor = 1) {
  const FoundLevels result = find_levels({.tensor = tensor}, places);
  EXPECT_EQ(result.why_not, "");
  std::vector<std::string> texts;
  for (const MeshLevel& level : result.levels) {
    texts.push_back(fmt::format("{} {}", level.name, level.ranks));
  }
  return texts;
}

TEST(Levels, AreReadFromTheNamesOfMachines) {
  EXPECT_THAT(found(on({"a", "a", "b", "b"})), ElementsAre("node 2"));
  EXPECT_THAT(found(on({"a", "b", "c"})), ElementsAre("node 1"));
  EXPECT_THAT(found(on({"a", "a", "a", "a"})), ElementsAre("node 4"));
  EXPECT_THAT(found(on({"a", "a", "b", "b"}), 4), ElementsAre("node 2"));
  EXPECT_THAT(found({}), IsEmpty());
}

TEST(Levels, AreNoneWhereMachinesAreNoNodes) {
  const auto in_one_step = [&](const std::vector<std::string>& machines, const char* why,
                               int64_t tensor = 1) {
    const FoundLevels result = find_levels({.tensor = tensor}, on(machines));
    EXPECT_THAT(result.levels, IsEmpty());
    EXPECT_THAT(result.why_not, HasSubstr(why));
  };
  in_one_step({"a", "b", "a", "b"}, "rank 2 is on a");
  in_one_step({"a", "a", "b", "c"}, "rank 3 is on c");
  in_one_step({"a", "a", "b", "b", "b", "c"}, "rank 4 is on b");
  in_one_step({"a", "a", "b"}, "the last machine has 1 ranks, and the others 2");
  in_one_step({"a", "a", "b", "b", "c", "c"}, "3 ranks share a model, and a machine has 2", 3);
}

/// The places of ranks on two machines, rank by rank of each.
std::vector<RankPlace> on_two_machines(const std::vector<CorePlace>& ranks) {
  std::vector<RankPlace> places;
  for (const char* machine : {"a", "b"}) {
    for (const CorePlace& cores : ranks) places.push_back({machine, cores});
  }
  return places;
}

TEST(Levels, WithinAMachineAreItsPackagesAndItsMemories) {
  EXPECT_THAT(found(on_two_machines({{0, 0}, {0, 0}, {1, 1}, {1, 1}})),
              ElementsAre("numa 2", "package 2", "node 4"));
  const std::vector<CorePlace> two_memories_a_package{{0, 0}, {0, 0}, {0, 1}, {0, 1},
                                                      {1, 2}, {1, 2}, {1, 3}, {1, 3}};
  EXPECT_THAT(found(on_two_machines(two_memories_a_package)),
              ElementsAre("numa 2", "package 4", "node 8"));
  EXPECT_THAT(found(on_two_machines({{0, 0}, {0, 0}, {1, 0}, {1, 0}})),
              ElementsAre("package 2", "numa 4", "node 4"))
      << "one memory for all packages";
  EXPECT_THAT(found(on_two_machines({{0, 0}, {0, 0}})),
              ElementsAre("numa 2", "package 2", "node 2"))
      << "one package";
  EXPECT_THAT(found({{"a", {1, 1}}, {"a", {1, 1}}, {"a", {0, 0}}, {"a", {0, 0}}}),
              ElementsAre("numa 2", "package 2", "node 4"))
      << "one machine, the second package first";
}

TEST(Levels, WithinAMachineAreTheSameOnEveryMachine) {
  const std::vector<std::string> node_alone{"node 4"};
  EXPECT_EQ(found(on_two_machines({{0, -1}, {0, -1}, {1, -1}, {-1, -1}})), node_alone)
      << "one rank is not bound";
  EXPECT_EQ(found(on_two_machines({{0, -1}, {1, -1}, {0, -1}, {1, -1}})), node_alone) << "in turns";
  EXPECT_EQ(found(on_two_machines({{0, -1}, {0, -1}, {0, -1}, {1, -1}})), node_alone) << "uneven";
  EXPECT_EQ(found(on_two_machines({{0, -1}, {1, -1}, {2, -1}, {3, -1}})), node_alone)
      << "one rank a package";
  EXPECT_THAT(found(on_two_machines({{0, -1}, {0, 0}, {1, 1}, {1, 1}})),
              ElementsAre("package 2", "node 4"))
      << "bound to a package, but to no memory";
  std::vector<RankPlace> other = on_two_machines({{0, -1}, {0, -1}, {1, -1}, {1, -1}});
  other.back().cores.package = 0;
  EXPECT_EQ(found(other), node_alone);
}

/// Three ranks share a model: packages of two ranks would cut it.
TEST(Levels, WithinAMachineFitTheRanksThatShareAModel) {
  const std::vector<CorePlace> ranks{{0, -1}, {0, -1}, {1, -1}, {1, -1}, {2, -1}, {2, -1}};
  EXPECT_THAT(found(on_two_machines(ranks), 3), ElementsAre("node 6"));
  EXPECT_THAT(found(on_two_machines(ranks), 6), ElementsAre("package 2", "node 6"));
}

/// The sizes of the data axis for listed levels.
std::vector<int> sizes(ParallelSection parallel, int ranks, const std::vector<int64_t>& levels) {
  parallel.levels = levels;
  return data_levels(parallel, ranks, listed_levels(parallel, ranks));
}

TEST(Levels, GiveTheDataAxisLevels) {
  EXPECT_THAT(sizes({.tensor = 2}, 8, {4}), ElementsAre(2, 2));
  EXPECT_THAT(sizes({.tensor = 4}, 8, {2}), ElementsAre(1, 2));
  EXPECT_THAT(sizes({.tensor = 2}, 8, {}), ElementsAre(4));
  EXPECT_THAT(sizes({.tensor = 2}, 8, {8}), ElementsAre(4));
  EXPECT_THAT(sizes({}, 16, {2, 4}), ElementsAre(2, 4, 2));
  EXPECT_THAT(sizes({}, 8, {2, 4}), ElementsAre(2, 4));
  EXPECT_THAT(sizes({.tensor = 8}, 32, {2, 2, 4}), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(sizes({.tensor = 2, .pipeline = 2}, 32, {2, 2, 4}), ElementsAre(1, 1, 4, 2));
  EXPECT_THAT(data_levels({}, 8, std::vector<MeshLevel>{{"numa", 4}, {"package", 4}, {"node", 8}}),
              ElementsAre(4, 2))
      << "two names of one level";
}

TEST(Levels, ThatDoNotDivideAreNamed) {
  EXPECT_THAT(
      error_of([] {
        sizes({}, 12, {2, 4});
      }),
      AllOf(HasSubstr("parallel.levels ([2, 4]): the 8 ranks of a node do not divide the 12 "
                      "ranks"),
            HasSubstr("choose levels whose product divides 12")));
  EXPECT_THAT(
      error_of([] { sizes({.tensor = 3}, 12, {2}); }),
      AllOf(HasSubstr("parallel.levels ([2]): of the 2 ranks of a node and the 3 ranks that "
                      "share a model neither divides the other"),
            HasSubstr("[12] to sum gradients in one step")));
  EXPECT_THAT(error_of([] {
                sizes({.tensor = 8}, 24, {3, 8});
              }),
              HasSubstr("the 3 ranks of a group of the level group.3 and the 8 ranks"));
  EXPECT_THAT(sizes({.tensor = 3}, 12, {12}), ElementsAre(4));
  const std::vector<int64_t> large(8, kMostRanks);  // their product is 2^160
  EXPECT_THAT(error_of([&] { sizes({}, 8, large); }), HasSubstr("do not divide the 8 ranks"));
}

std::vector<std::string> sentences(ParallelSection parallel, int ranks,
                                   const std::vector<int64_t>& levels) {
  parallel.levels = levels;
  return sums_across_levels(parallel, ranks, listed_levels(parallel, ranks));
}

/// Where experts fill whole nodes, or nodes have whole groups of them, nothing is to be said.
TEST(Levels, SayWhatIsNotSummedByNode) {
  EXPECT_THAT(sentences({.expert = 2}, 8, {4}), IsEmpty());
  EXPECT_THAT(sentences({.tensor = 4, .expert = 8}, 16, {4}), IsEmpty());
  EXPECT_THAT(sentences({.tensor = 4, .expert = 4}, 12, {12}), IsEmpty());
  EXPECT_THAT(sentences({.tensor = 4, .expert = 4}, 12, {}), IsEmpty());
  EXPECT_THAT(sentences({.tensor = 4}, 8, {2}),
              ElementsAre(HasSubstr("4 ranks share a model, and a node has 2")));
  EXPECT_THAT(sentences({.tensor = 6, .expert = 4}, 12, {6}),
              ElementsAre(AllOf(HasSubstr("parallel.expert is 4, and a node has 6 ranks"),
                                HasSubstr("the gradients of experts are not summed by node"))));
}

TEST(Levels, SayWhatIsNotSummedByEachOfThem) {
  EXPECT_THAT(sentences({.expert = 2}, 16, {2, 4}), IsEmpty());
  EXPECT_THAT(sentences({.tensor = 4}, 16, {2, 4}),
              ElementsAre(AllOf(HasSubstr("4 ranks share a model, and a pair has 2"),
                                HasSubstr("are not taken by pair"))));
  EXPECT_THAT(
      sentences({.expert = 2}, 12, {3, 2}),
      ElementsAre(HasSubstr("parallel.expert is 2, and a group of the level group.3 has 3")));
  EXPECT_THAT(sums_across_levels({.tensor = 4}, 8,
                                 std::vector<MeshLevel>{{"numa", 2}, {"package", 2}, {"node", 8}}),
              ElementsAre(HasSubstr("and a package has 2")))
      << "once for two names";
}

/// Only the ranks of a stage sum gradients: the stages of a model may be on several nodes.
TEST(Levels, CountTheRanksOfAStage) {
  EXPECT_THAT(sizes({.tensor = 2, .pipeline = 2}, 16, {8}), ElementsAre(2, 2));
  EXPECT_THAT(sizes({.tensor = 2, .pipeline = 4}, 16, {4}), ElementsAre(1, 2));
  EXPECT_THAT(sentences({.tensor = 2, .pipeline = 4}, 16, {4}), IsEmpty());
  EXPECT_THAT(sentences({.tensor = 4, .pipeline = 2}, 16, {2}),
              ElementsAre(HasSubstr("4 ranks share a stage of a model, and a node has 2")));
  EXPECT_THAT(sentences({.pipeline = 2, .expert = 3}, 24, {12}), IsEmpty());
  EXPECT_THAT(
      sentences({.pipeline = 2, .expert = 4}, 24, {12}),
      ElementsAre(HasSubstr("parallel.expert is 4, and a node has 6 ranks of a stage, of which")));
}

}  // namespace
}  // namespace tessera
