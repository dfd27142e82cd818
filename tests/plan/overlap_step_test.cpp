#include "plan/overlap_step.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "config/mesh_of.h"
#include "hardware/hardware_file.h"
#include "plan/small_run.h"
#include "support/slow_hardware.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

/// The head computes its products for the backward pass in the forward pass: three times the
/// product of tokens and the head. 1024 tokens of 1024 numbers take longer to multiply than to
/// read.
TEST(NominalSeconds, CountEachProductOfTheHeadOnce) {
  const RunConfig config = testing::small_run(
      1, {"model.hidden_size=1024", "data.context=1024", "model.vocabulary_size=4096"});
  const StepPrograms programs = step_programs(config, {mesh_of(config, 1), 0});
  const Program& program = programs.chunks().front().program;
  const auto head = std::ranges::find_if(program.nodes(), [&](const Node& node) {
    return node_cost(program, node).backward_flops > 0;
  });
  ASSERT_NE(head, program.nodes().end());
  const double products = 3 * 2.0 * 1024 * 1024 * 4096;
  EXPECT_DOUBLE_EQ(nominal_seconds(program, *head), products / 400e12);
}

/// Returns the names of all nodes of a rank's programs, in their order.
std::vector<std::string> order_of(const StepPrograms& programs) {
  std::vector<std::string> names;
  for (const Program* const program : programs.list()) {
    for (const Node& node : program->nodes()) names.push_back(program->name_of(node));
  }
  return names;
}

/// Neither 65 nor 97 is a multiple of 3, so the last rank's pieces are smaller.
RunConfig uneven_run(const std::vector<std::string>& more) {
  std::vector<std::string> keys{"parallel.tensor=3", "model.hidden_size=48",
                                "model.heads=6",     "model.kv_heads=3",
                                "model.head_dim=8",  "model.feed_forward_size=65",
                                "data.context=18",   "model.vocabulary_size=97"};
  keys.insert(keys.end(), more.begin(), more.end());
  return testing::small_run(2, keys);
}

/// Returns the rank with the lowest number in each stage.
std::set<int> first_ranks(const Mesh& mesh) {
  std::map<int, int> first;  // by stage
  for (int rank = 0; rank < mesh.ranks(); ++rank) first.try_emplace(mesh.stage(rank), rank);
  std::set<int> result;
  for (const auto& [stage, rank] : first) result.insert(rank);
  return result;
}

/// Expects that ranks of one stage have one order, whatever the memory.
void expect_one_order(const std::vector<std::string>& keys) {
  constexpr int kRanks = 6;
  for (const char* const memory : {"0 B", "3 KiB", "16 KiB", "1 GiB"}) {
    std::vector<std::string> all = keys;
    all.push_back(fmt::format("parallel.overlap_memory='{}'", memory));
    const RunConfig config = uneven_run(all);
    const Mesh mesh = mesh_of(config, kRanks);
    std::map<int, std::vector<std::string>> orders;  // by stage
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<std::string> own = order_of(step_programs(config, {mesh, rank}));
      EXPECT_TRUE(orders.try_emplace(mesh.stage(rank), own).first->second == own)
          << "rank " << rank << ", " << ::testing::PrintToString(all);
    }
  }
}

TEST(OverlapStep, GivesRanksOfAStageOneOrderIfTheirPiecesAreUneven) {
  expect_one_order({});
  expect_one_order({"parallel.pipeline=2"});
  expect_one_order({"shard.optimizer='all'", "shard.gradients='all'", "shard.weights='all'"});
}

/// Computing is slow there, so that pieces of different sizes take times that differ much.
TEST(OverlapStep, GivesRanksOfAStageOneOrderByTheTimesOfAHardwareFile) {
  const TemporaryFolder folder;
  testing::write_slow_hardware(folder / "hardware.json");
  const std::string key = fmt::format("run.hardware='{}'", (folder / "hardware.json").string());
  expect_one_order({key});
  expect_one_order({key, "parallel.pipeline=2"});
}

/// Whatever a rank's own numbers are, it takes the order that those of its stage's first rank give.
TEST(OverlapStep, GivesRanksOfAStageTheOrderOfTheFirstOne) {
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"parallel.tensor=3"},
           {"parallel.context=3"},
           {"parallel.tensor=3", "train.recompute=['layer']"},
           {"model.experts=3", "model.experts_per_token=2", "model.family='mixtral'",
            "model.expert_size=16", "model.feed_forward_size=0", "parallel.expert=3"}}) {
    SCOPED_TRACE(::testing::PrintToString(keys));
    std::vector<std::string> all{"parallel.overlap=false", "parallel.pipeline=2",
                                 "data.context=18",        "model.hidden_size=48",
                                 "model.heads=6",          "model.kv_heads=3",
                                 "model.head_dim=8",       "train.global_batch=12"};
    all.insert(all.end(), keys.begin(), keys.end());
    const RunConfig config = testing::small_run(2, all);
    const Mesh mesh = mesh_of(config, 6);
    const auto written = [&](int rank) { return step_programs(config, {mesh, rank}); };
    const OverlapOptions options{
        .seconds =
            [](const Program& program, const Node& node) {
              const auto index = &node - program.nodes().data();
              return static_cast<double>((index * 7 + 5 * program.rank()) % 11);
            },
        .memory = int64_t{1} << 30};
    std::map<int, std::vector<std::string>> orders;  // by stage
    for (int rank = 0; rank < 6; ++rank) {
      StepPrograms programs = written(rank);
      FoundOrders nothing;
      overlap(programs, options, written, nothing);
      const std::vector<std::string> own = order_of(programs);
      EXPECT_NE(own, order_of(written(rank))) << "nothing was moved";
      EXPECT_TRUE(orders.try_emplace(mesh.stage(rank), own).first->second == own) << rank;
    }
  }
}

/// Two stages of four ranks, of which all but the first ask at once. One of a stage writes the
/// programs of its first rank to look for the order; the others take what that one finds.
TEST(OverlapStep, IsFoundOnceForRanksThatShareIt) {
  const std::vector<std::string> keys{"parallel.pipeline=2", "parallel.tensor=4", "model.heads=4",
                                      "model.kv_heads=4"};
  std::vector<std::string> without = keys;
  without.emplace_back("parallel.overlap=false");
  const RunConfig config = testing::small_run(2, without);
  const Mesh mesh = mesh_of(config, 8);
  const StepOverlap overlap_of_run = step_overlap(config, mesh);
  std::mutex mutex;
  std::vector<int> written_for_others;
  const auto written = [&](int rank) {
    const std::lock_guard lock(mutex);
    written_for_others.push_back(rank);
    return step_programs(config, {mesh, rank});
  };
  FoundOrders found;
  std::array<std::vector<std::string>, 8> orders;
  const auto overlap_rank = [&](size_t rank) {
    StepPrograms programs = step_programs(config, {mesh, static_cast<int>(rank)});
    overlap(programs, overlap_of_run.options, written, found);
    orders[rank] = order_of(programs);
  };
  const std::set<int> firsts = first_ranks(mesh);
  ASSERT_EQ(firsts.size(), 2U);
  std::vector<std::jthread> others;
  for (size_t rank = 0; rank < orders.size(); ++rank) {
    if (!firsts.contains(static_cast<int>(rank))) others.emplace_back(overlap_rank, rank);
  }
  others.clear();
  for (const int rank : firsts) overlap_rank(static_cast<size_t>(rank));
  std::ranges::sort(written_for_others);
  EXPECT_TRUE(std::ranges::equal(written_for_others, firsts));
  const RunConfig with_overlap = testing::small_run(2, keys);
  for (size_t rank = 0; rank < orders.size(); ++rank) {
    const int number = static_cast<int>(rank);
    EXPECT_EQ(orders[rank], order_of(step_programs(with_overlap, {mesh, number}))) << rank;
    EXPECT_NE(orders[rank], order_of(step_programs(config, {mesh, number}))) << rank;
  }
}

/// A rank whose search fails gets the error, and the next one searches again.
TEST(OverlapStep, OfRanksThatShareItFailsForEach) {
  const RunConfig config = testing::small_run(2, {"parallel.overlap=false", "parallel.tensor=2"});
  const Mesh mesh = mesh_of(config, 2);
  const OverlapOptions failing{
      .seconds = [](const Program&, const Node&) -> double { throw Error("no seconds"); },
      .memory = 0};
  FoundOrders found;
  for (const int rank : {0, 1}) {
    StepPrograms programs = step_programs(config, {mesh, rank});
    EXPECT_THROW(overlap(
                     programs, failing,
                     [&](int other) {
                       return step_programs(config, {mesh, other});
                     },
                     found),
                 Error)
        << rank;
  }
}

/// Gathers of sharded units begin ahead of their use in evaluations too.
TEST(OverlapStep, PutsEvaluationsIntoOrder) {
  const auto evaluation_of = [](int rank, const std::string& key) {
    const RunConfig config =
        testing::small_run(3, {key, "train.evaluate_every=1", "shard.optimizer='all'",
                               "shard.gradients='all'", "shard.weights='all'"});
    StepPrograms programs = step_programs(config, {mesh_of(config, 2), rank});
    std::vector<std::string> names;
    const Program& program = programs.sets.front().evaluation->chunks.front().program;
    for (const Node& node : program.nodes()) names.push_back(program.name_of(node));
    return names;
  };
  const std::vector<std::string> written = evaluation_of(0, "parallel.overlap=false");
  const std::vector<std::string> ordered = evaluation_of(0, "parallel.overlap=true");
  EXPECT_NE(ordered, written);
  EXPECT_TRUE(std::ranges::is_permutation(ordered, written));
  EXPECT_EQ(evaluation_of(1, "parallel.overlap=true"), ordered);
}

}  // namespace
}  // namespace tessera
