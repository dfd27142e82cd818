#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/process_runs.h"
#include "metrics/metrics.h"

namespace tessera {
namespace {

using testing::Arguments;
using ::testing::HasSubstr;
using testing::joined;

/// Runs on two emulated nodes, where this machine allows them.
class RunsOnTwoNodes : public testing::ProcessRuns {
 protected:
  void SetUp() override {
    testing::ProcessRuns::SetUp();
    const std::string why = why_no_nodes();
    if (!why.empty()) GTEST_SKIP() << why;
    testing::write_known_peak(folder_ / "hardware.json", 1);
  }

  Result on_nodes(int ranks, const Arguments& arguments, const Arguments& options = {}) const {
    const Arguments launcher{TESSERA_RUN_CLUSTER, "--ranks", std::to_string(ranks), "--rate",
                             "1gbit"};
    testing::Subprocess cluster(joined(joined(launcher, joined(options, {TESSERA_PROGRAM})),
                                       joined(arguments, set("run.threads", "1"))),
                                folder_ / "cluster.txt");
    const int status = cluster.wait();
    return {status, cluster.output()};
  }

  /// Expects that four processes which meet by TCP have the run of four threads.
  void expect_run_of_threads_by_tcp(const Arguments& keys) {
    const Result threads =
        run(training("threads", joined(joined(keys, set("run.threads", "1")), {"--ranks", "4"})));
    ASSERT_EQ(threads.status, 0) << threads.output;
    const Result processes = on_nodes(4, training("processes", keys), {"--tcp"});
    ASSERT_EQ(processes.status, 0) << processes.output;
    expect_same_run("threads", "processes", 8);
  }
};

/// Layouts of processes on one machine and on two emulated ones, against threads.
TEST_F(RunsOnTwoNodes, GiveTheBitsOfThreadsAndOfOneNode) {
  struct Layout {
    const char* name;
    int ranks;
    const char* mesh;  ///< on two nodes
    Arguments keys;
  };
  const std::vector<Layout> layouts{
      {"data", 4, "2 data.0 x 2 data.1",
       joined(set("train.micro_batch", "1"), set("shard.gradients_wire", "\"bf16\""))},
      {"context", 4, "2 context x 2 data.1, 2 expert",
       joined(set("parallel.context", "2"), set("parallel.expert", "2"))},
      {"tensor", 8, "2 tensor x 2 data.0 x 2 data.1, 4 expert",
       joined(joined(set("parallel.tensor", "2"), set("parallel.expert", "4")),
              joined(set("train.micro_batch", "1"),
                     set("parallel.expert_exchange", "\"all_to_all\"")))}};
  for (Layout layout : layouts) {
    SCOPED_TRACE(layout.name);
    // A node has all of run.threads, and each rank memory for its own.
    layout.keys = joined(layout.keys, set("run.threads", "1"));
    const std::string ranks = std::to_string(layout.ranks);
    const auto folder_of = [&](const char* start) {
      return fmt::format("{}-{}", start, layout.name);
    };
    const auto nodes_of = [](int node_ranks) {
      return set("parallel.levels", fmt::format("[{}]", node_ranks));
    };
    const auto on_threads = [&](const char* start, const Arguments& more) {
      const Result result =
          run(training(folder_of(start), joined(joined(layout.keys, more), {"--ranks", ranks})));
      EXPECT_EQ(result.status, 0) << result.output;
    };
    const auto on_two_nodes = [&](const char* start, const Arguments& more) {
      const Result result =
          on_nodes(layout.ranks, training(folder_of(start), joined(layout.keys, more)));
      EXPECT_EQ(result.status, 0) << result.output;
      return result.output;
    };
    const auto expect_same = [&](const char* a, const char* b,
                                 const std::vector<std::string>& other_keys = {}) {
      SCOPED_TRACE(fmt::format("{} and {}", a, b));
      expect_same_run(folder_of(a), folder_of(b), 2 * static_cast<size_t>(layout.ranks),
                      other_keys);
    };
    on_threads("threads", {});
    const Result processes = run_processes(layout.ranks, training(folder_of("one"), layout.keys));
    ASSERT_EQ(processes.status, 0) << processes.output;
    expect_same("threads", "one");
    // Two nodes in one step, as threads do it.
    on_two_nodes("flat", nodes_of(layout.ranks));
    expect_same("threads", "flat", {"parallel.levels"});
    // Gradients are summed by node, which threads do where it is said.
    EXPECT_THAT(on_two_nodes("two", {}),
                HasSubstr(fmt::format("{} ranks ({})", ranks, layout.mesh)));
    on_threads("nodes", nodes_of(layout.ranks / 2));
    expect_same("nodes", "two", {"parallel.levels"});
  }
}

/// A mixture with data, expert and pipeline axes.
TEST_F(RunsOnTwoNodes, GiveTheSameBitsWithOverlap) {
  const Arguments keys =
      joined(joined(pipeline(2, 2, set("parallel.expert", "2")), set("run.hardware", "''")),
             set("train.micro_batch", "1"));
  for (const char* overlap : {"true", "false"}) {
    const Result result =
        on_nodes(8, training(overlap, joined(keys, set("parallel.overlap", overlap))));
    EXPECT_EQ(result.status, 0) << result.output;
  }
  expect_same_run("true", "false", 16, {"parallel.overlap"});
}

TEST_F(RunsOnTwoNodes, GoOnUnderAnotherLayout) {
  const Arguments wide = joined(set("train.precision", "\"fp64\""), set("checkpoint.every", "2"));
  const Result whole = run(training("whole", joined(wide, set("run.threads", "1"))));
  ASSERT_EQ(whole.status, 0) << whole.output;
  const Arguments layout = joined(set("parallel.tensor", "2"), set("parallel.expert", "4"));
  const Result first = on_nodes(
      4, training("parts", joined(joined(joined(wide, layout), set("train.stop_after", "2")),
                                  set("train.micro_batch", "1"))));
  ASSERT_EQ(first.status, 0) << first.output;
  const Result second = on_nodes(
      2, training("parts", joined(joined(wide, {"--resume"}), set("train.micro_batch", "1"))));
  ASSERT_EQ(second.status, 0) << second.output;
  const std::vector<StepMetrics> expected = read_metrics(folder_ / "whole" / "metrics.jsonl");
  const std::vector<StepMetrics> found = read_metrics(folder_ / "parts" / "metrics.jsonl");
  ASSERT_EQ(expected.size(), 4U);
  ASSERT_EQ(found.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(found[i].loss / expected[i].loss, 1, 1e-10) << "step " << i + 1;
    EXPECT_NEAR(found[i].grad_norm / expected[i].grad_norm, 1, 1e-10) << "step " << i + 1;
  }
}

/// They meet in the first one's process, at an address of the network between them.
TEST_F(RunsOnTwoNodes, MeetByTcp) {
  expect_run_of_threads_by_tcp(
      joined(set("train.micro_batch", "1"), set("parallel.levels", "[2]")));
}

/// Each node has two of the four stages. Activations and gradients go between the nodes and within
/// each, down the stages and up again.
TEST_F(RunsOnTwoNodes, HaveStagesOfAPipelineThatMeetByTcp) {
  expect_run_of_threads_by_tcp(
      pipeline(4, 8, joined(set("train.global_batch", "8"), set("parallel.schedule", "'zb-v'"))));
}

/// Sums by node are compared bit for bit, as they are on one machine.
TEST_F(RunsOnTwoNodes, VerifyTheLayout) {
  Arguments verify{"verify", (folder_ / "run.toml").string(), "--json"};
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"model.family", "\"llama\""},
                                                        {"model.experts", "0"},
                                                        {"model.experts_per_token", "0"},
                                                        {"model.expert_size", "0"},
                                                        {"model.feed_forward_size", "48"},
                                                        {"train.micro_batch", "1"}}) {
    verify = joined(verify, set(key, value));
  }
  const Result result = on_nodes(4, verify);
  ASSERT_EQ(result.status, 0) << result.output;
  const auto found = nlohmann::json::parse(result.output.substr(result.output.find("{\n")));
  EXPECT_EQ(found.at("passed"), true);
  EXPECT_EQ(found.at("layout"), "2 data.0 x 2 data.1");
  EXPECT_EQ(found.at("bits_in_the_layouts_order").value("same", false), true) << result.output;
}

}  // namespace
}  // namespace tessera
