#pragma once

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/prepared_data.h"

namespace tessera::testing {

/// Runs of processes, as mpirun starts them, and of threads, on small data in a folder.
class ProcessRuns : public ::testing::Test {
 protected:
  using Result = ProgramResult;

  void SetUp() override {
    prepare_small_data(folder_.path());
    write_file(folder_ / "run.toml", small_config(folder_.path()));
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
    const Arguments launcher{TESSERA_RUN_PROCESSES, std::to_string(processes), TESSERA_PROGRAM};
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
  fs::path checkpoint(const std::string& name, int64_t step = 4) const {
    return folder_ / name / "checkpoints" / fmt::format("step-{:08}", step);
  }

  TemporaryFolder folder_;
};

}  // namespace tessera::testing
