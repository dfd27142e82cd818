#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder.h"
#include "cli/program.h"
#include "config/differences.h"
#include "config/load_config.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "config/resolve.h"
#include "fault/preload.h"
#include "metrics/metrics.h"
#include "support/names_in.h"
#include "support/prepared_data.h"
#include "support/trace_of_schedule.h"
#include "train/cut_matrices.h"

namespace tessera::testing {

/// Runs of processes, as mpirun starts them, and of threads, on small data in a folder.
class ProcessRuns : public ::testing::Test {
 protected:
  using Result = ProgramResult;

  void SetUp() override {
    prepare_small_data(folder_.path());
    write_file(folder_ / "run.toml", small_config(folder_.path()));
    // After an error of one, mpirun would wait for two seconds before it kills the others. All of
    // them have said what they have to say before one ends.
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);
  }

  static Arguments set(const std::string& key, const std::string& value) {
    return {"--set", key + "=" + value};
  }
  /// The arguments of a training of some steps, which writes to a folder of this name.
  Arguments training(const std::string& name, const Arguments& more = {}) const {
    const std::string directory = fmt::format("\"{}\"", (folder_ / name).string());
    return joined(joined({"train", (folder_ / "run.toml").string(), "--quiet"},
                         joined(set("run.directory", directory), set("train.stop_after", "4"))),
                  more);
  }
  Result run(const Arguments& arguments) const { return run_program(folder_, arguments); }
  /// Starts so many processes. `others` are what mpirun gets after the program's arguments.
  std::unique_ptr<Subprocess> start(int processes, const Arguments& arguments,
                                    const Arguments& others = {}) const {
    Arguments launcher{TESSERA_RUN_PROCESSES};
    if (by_tcp_) launcher.emplace_back("--tcp");
    launcher = joined(launcher, {std::to_string(processes), TESSERA_PROGRAM});
    return std::make_unique<Subprocess>(joined(joined(launcher, arguments), others),
                                        folder_ / "processes.txt");
  }
  Result run_processes(int processes, const Arguments& arguments,
                       const Arguments& others = {}) const {
    const auto started = start(processes, arguments, others);
    const int status = started->wait();
    return {status, started->output()};
  }
  /// Waits until a path is there, for half a minute at most.
  static void await(const fs::path& path) {
    for (int i = 0; i < 600 && !path_exists(path); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  /// Waits until a run has written a checkpoint, for half a minute at most, and returns whether it
  /// has. It may soon be removed for newer ones.
  bool await_checkpoint(const std::string& name) const {
    const fs::path checkpoints = folder_ / name / "checkpoints";
    for (int i = 0; i < 6000; ++i) {
      if (path_exists(checkpoints) && !list_checkpoints(checkpoints).complete.empty()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  /// The processes that mpirun has started, in the order of their ranks.
  static std::vector<pid_t> processes_of(const Subprocess& mpirun) {
    std::vector<pid_t> all;
    std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", mpirun.id()));
    for (pid_t child = 0; children >> child;) all.push_back(child);
    return all;
  }
  /// Why this machine can emulate no nodes; empty if it can. Fails if it can, and the nodes fail.
  std::string why_no_nodes() const {
    Subprocess emulated({TESSERA_RUN_CLUSTER, "--nodes", "2", "true"}, folder_ / "nodes.txt");
    const int status = emulated.wait();
    const std::string output = emulated.output();
    constexpr int kRefused = 2;
    for (const char* reason : {"emulated nodes need root", "there is no ",
                               "this machine allows no network namespaces"}) {
      if (status == kRefused && output.find(reason) != std::string::npos) return output;
    }
    EXPECT_EQ(status, 0) << output;
    return "";
  }
  /// Keys with which two ranks send each other pieces of Muon's matrices.
  std::vector<std::string> cut_by_muon() const {
    const std::vector<std::string> keys{"optimizer.name='muon'", "shard.optimizer='all'",
                                        "model.layers=3", "model.hidden_size=96"};
    const RunConfig config = resolve_data(load_config(folder_ / "run.toml", keys));
    EXPECT_TRUE(cuts_matrices(config, 2));
    return keys;
  }
  /// Trains on two emulated devices, of threads and of processes.
  void expect_bits_of_threads_on_devices(const std::string& name,
                                         const std::vector<std::string>& keys) const {
    Arguments layout = joined(set("run.device", "'emulated'"), set("run.hardware", "''"));
    layout = joined(layout, set("train.micro_batch", "1"));
    layout = joined(layout, set("train.stop_after", "2"));
    for (const std::string& key : keys) layout = joined(layout, {"--set", key});
    const std::string of_threads = name + "-threads", of_processes = name + "-processes";
    const Result threads = run(training(of_threads, joined(layout, {"--ranks", "2"})));
    ASSERT_EQ(threads.status, 0) << threads.output;
    const Result processes = run_processes(2, training(of_processes, layout));
    ASSERT_EQ(processes.status, 0) << processes.output;
    expect_same_run(of_threads, of_processes, 4, {}, 2);
  }
  /// Keys of a model of so many layers that goes into a pipeline of so many stages.
  static Arguments pipeline(int stages, int layers, const Arguments& more = {}) {
    const Arguments keys = joined(set("parallel.pipeline", std::to_string(stages)),
                                  set("model.layers", std::to_string(layers)));
    return joined(joined(keys, set("model.balance_form", "'layer'")), more);
  }
  /// Trains in pipelines on threads and on as many processes.
  void expect_bits_of_threads_in_pipelines() const {
    struct Layout {
      int ranks;
      std::string mesh;
      Arguments keys;
    };
    const Arguments batch = set("train.global_batch", "8");
    const Arguments zero_bubble = joined(batch, set("parallel.schedule", "'zb-v'"));
    const Arguments tied = joined(batch, set("model.tied_head", "true"));
    const Arguments experts = joined(set("train.global_batch", "16"), set("parallel.expert", "2"));
    const std::vector<Layout> layouts{
        {4, "4 pipeline", pipeline(4, 8, zero_bubble)},
        {4, "2 pipeline x 2 data", pipeline(2, 2, tied)},
        {8, "4 pipeline x 2 data, 2 expert", pipeline(4, 4, experts)}};
    for (const auto& [ranks, mesh, keys] : layouts) {
      SCOPED_TRACE(mesh);
      const std::string number = std::to_string(ranks);
      const std::string of_threads = "threads of " + mesh, of_processes = "processes of " + mesh;
      const Result threads = run(training(of_threads, joined(keys, {"--ranks", number})));
      ASSERT_EQ(threads.status, 0) << threads.output;
      const Result processes = run_processes(ranks, training(of_processes, keys));
      ASSERT_EQ(processes.status, 0) << processes.output;
      EXPECT_NE(processes.output.find(number + " ranks (" + mesh + ")"), std::string::npos)
          << processes.output;
      expect_same_run(of_threads, of_processes, 2 * static_cast<size_t>(ranks));
    }
  }
  /// The arguments of a training in a pipeline of two stages, which traces a step.
  Arguments traced_pipeline() const {
    return training("traced", pipeline(2, 2, set("run.trace_step", "3")));
  }
  /// Returns the trace that it wrote, which has both stages.
  RunTrace trace_of_pipeline() const {
    RunTrace trace = read_trace(folder_ / "traced" / "trace.json");
    EXPECT_EQ(trace.ranks.size(), 2U);
    const RunConfig config = load_config(folder_ / "traced" / "config.toml");
    expect_trace_of(pipeline_schedule(config, mesh_of(config, 2)), trace);
    return trace;
  }
  void expect_trace_of_processes() const {
    const Result processes = run_processes(2, traced_pipeline());
    ASSERT_EQ(processes.status, 0) << processes.output;
    EXPECT_EQ(occurrences(processes.output, "wrote the trace of step 3"), 1U) << processes.output;
    for (const RankTrace& rank : trace_of_pipeline().ranks) {
      EXPECT_EQ(rank.stage, rank.rank());
      EXPECT_EQ(rank.step.number, 3);
      EXPECT_EQ(rank.step.clock_uncertainty, 0) << "processes of one machine share its clock";
    }
    const Result summary = run({"trace", "summarize", (folder_ / "traced").string()});
    EXPECT_EQ(summary.status, 0);
    EXPECT_NE(summary.output.find("schedule: 1f1b"), std::string::npos) << summary.output;
  }
  /// Seconds of run.rank_timeout where a rank is stopped or does not come. Ranks of a busy machine
  /// start and save within them.
  static constexpr const char* kPatience = "5";
  /// A pipeline of processes that trains until somebody ends it.
  struct StartedPipeline {
    std::unique_ptr<Subprocess> launcher;
    std::vector<pid_t> stages;
  };
  /// Starts a pipeline of three stages and waits until it has saved a checkpoint.
  StartedPipeline start_pipeline(const std::string& name) const {
    const Arguments endless =
        joined(joined(set("train.steps", "100000"), set("train.stop_after", "100000")),
               joined(set("checkpoint.every", "5"), set("run.rank_timeout", kPatience)));
    StartedPipeline started{
        start(3, training(name, pipeline(3, 3, joined(endless, set("train.global_batch", "6"))))),
        {}};
    EXPECT_TRUE(await_checkpoint(name)) << started.launcher->output();
    const std::vector<pid_t> all = processes_of(*started.launcher);
    EXPECT_GE(all.size(), 3U) << started.launcher->output();
    if (all.size() >= 3) started.stages.assign(all.end() - 3, all.end());
    return started;
  }
  /// Trains on two processes of which the first is stopped by a fault, "KIND:N:PATH" with the path
  /// in the run's folder, and expects the other to say these words and to end.
  void expect_end_without_first(const std::string& name, const std::string& fault,
                                const std::vector<std::string>& words) const {
    const size_t path = fault.rfind(':') + 1;
    const PreloadedFault stop(fault.substr(0, path) +
                              (fs::canonical(folder_.path()) / name / fault.substr(path)).string());
    const auto started = start(2, training(name, set("run.rank_timeout", kPatience)));
    const auto said = [&] {
      const std::string output = started->output();
      return std::ranges::all_of(
          words, [&](const std::string& word) { return output.find(word) != std::string::npos; });
    };
    for (int i = 0; i < 600 && !said(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_TRUE(said()) << started->output();
    // The second has said it. The launcher may wait for the first.
    for (const pid_t rank : processes_of(*started)) ::kill(rank, SIGKILL);
    EXPECT_NE(started->wait(), 0);
  }
  fs::path checkpoint(const std::string& name, int64_t step = 4) const {
    return folder_ / name / "checkpoints" / fmt::format("step-{:08}", step);
  }
  /// The same numbers, and the same configuration but for the folder and, if they are named so, for
  /// keys of one of them.
  void expect_same_run(const std::string& a, const std::string& b, size_t tensor_files,
                       const std::vector<std::string>& other_keys = {}, int64_t steps = 4) const {
    std::vector<std::string> others{"run.directory"};
    others.insert(others.end(), other_keys.begin(), other_keys.end());
    EXPECT_EQ(other_keys_of(folder_ / a, folder_ / b), others);
    const fs::path saved_a = checkpoint(a, steps);
    const fs::path saved_b = checkpoint(b, steps);
    EXPECT_EQ(other_keys_of(saved_a, saved_b), others);
    const std::vector<StepMetrics> of_a = metrics(a);
    const std::vector<StepMetrics> of_b = metrics(b);
    ASSERT_EQ(std::ssize(of_a), steps);
    ASSERT_EQ(std::ssize(of_b), steps);
    const bool same_memory =  // overlap takes some
        std::ranges::find(other_keys, "parallel.overlap") == other_keys.end();
    for (size_t i = 0; i < of_a.size(); ++i) {
      EXPECT_EQ(of_a[i].loss, of_b[i].loss) << "step " << i + 1;
      EXPECT_EQ(of_a[i].grad_norm, of_b[i].grad_norm);
      EXPECT_EQ(of_a[i].expert_load, of_b[i].expert_load);
      EXPECT_EQ(of_a[i].tokens, of_b[i].tokens);
      if (same_memory) {
        EXPECT_EQ(of_a[i].memory_bytes, of_b[i].memory_bytes);
      }
    }
    const std::vector<std::string> files = names_in(saved_a);
    EXPECT_EQ(files, names_in(saved_b));
    size_t of_tensors = 0;
    for (const std::string& file : files) {
      if (!file.ends_with(".safetensors")) continue;
      ++of_tensors;
      EXPECT_TRUE(read_file(saved_a / file) == read_file(saved_b / file)) << file;
    }
    EXPECT_EQ(of_tensors, tensor_files) << "each rank writes parameters and moments";
  }
  /// The keys of which the folders' configurations have other values.
  static std::vector<std::string> other_keys_of(const fs::path& a, const fs::path& b) {
    std::vector<std::string> keys;
    for (const ConfigDifference& difference :
         differences(load_config(a / "config.toml"), load_config(b / "config.toml"))) {
      keys.push_back(difference.key);
    }
    return keys;
  }
  std::vector<StepMetrics> metrics(const std::string& name) const {
    return read_metrics(folder_ / name / "metrics.jsonl");
  }

  TemporaryFolder folder_;
  bool by_tcp_ = false;  ///< whether processes meet by TCP, without MPI
};

}  // namespace tessera::testing
