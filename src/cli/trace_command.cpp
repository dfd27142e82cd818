#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/file.h"
#include "cli/bench_commands.h"
#include "cli/commands.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "comm/mesh.h"
#include "pipeline/run_trace.h"
#include "plan/account/step_account.h"
#include "plan/account/trace_picture.h"

namespace tessera {
namespace {

struct TraceArguments {
  std::string path;
  std::optional<int> rank;
  std::string hardware;
  double gemm_peak = 0;         // GFLOP/s
  double memory_bandwidth = 0;  // GB/s
  bool measure = false;
  bool json = false;
};

void run_summarize(const TraceArguments& arguments) {
  constexpr double kGiga = 1e9;
  const StepAccount account = summarize_trace(arguments.path, arguments.rank,
                                              {.gemm_flops = arguments.gemm_peak * kGiga,
                                               .memory_bytes = arguments.memory_bandwidth * kGiga,
                                               .hardware = arguments.hardware,
                                               .measure = arguments.measure});
  fmt::print("{}", arguments.json ? account_json(account) : account_text(account));
}

struct DrawArguments {
  std::string path;
  std::string picture;
  TraceView view;
};

void run_draw(const DrawArguments& arguments) {
  require_picture(arguments.picture);
  const std::filesystem::path file = trace_file(arguments.path);
  refuse_same_file("--svg", arguments.picture, file);
  write_file(arguments.picture, draw(read_trace(file), arguments.view, file.string()));
}

void add_draw(CLI::App& trace) {
  CLI::App* command = trace.add_subcommand(
      "draw", "Draw a step: for each rank, what its lanes do and when, and where it waits");
  auto arguments = std::make_shared<DrawArguments>();
  add_input(*command, "TRACE", arguments->path, "A run's folder, or the file of a trace")
      ->required();
  add_output(*command, "--svg", arguments->picture, "The file of the picture")->required();
  add_list(*command, "--ranks", arguments->view.ranks,
           "The ranks that are drawn, as 0,2; left out: all of the trace")
      ->allow_extra_args(false)
      ->check(CLI::Range(0, kMostRanks - 1));
  constexpr double kLongest = 1e6;
  command
      ->add_option("--from", arguments->view.from,
                   "Where the picture begins, in seconds of the step; left out: with the step")
      ->check(CLI::Range(0.0, kLongest));
  command
      ->add_option("--to", arguments->view.to,
                   "Where it ends; left out: with the step. Pictures of equal --from and --to have "
                   "the same scale")
      ->check(CLI::Range(0.0, kLongest));
  command->callback([arguments] { run_draw(*arguments); });
}

void add_summarize(CLI::App& trace) {
  CLI::App* command = trace.add_subcommand(
      "summarize",
      "Say where a step's time went: by rank, block, pass and operation, and what limits it");
  auto arguments = std::make_shared<TraceArguments>();
  add_input(*command, "TRACE", arguments->path, "A run's folder, or the file of a trace")
      ->required();
  command
      ->add_option("--rank", arguments->rank,
                   "The rank whose time is listed; left out: the first one of the trace")
      ->check(CLI::Range(0, kMostRanks - 1));
  command->add_flag(
      "--measure", arguments->measure,
      "Time each of the step's matrix products alone, on the processor that the trace "
      "comes from, left otherwise idle (some seconds)");
  add_input(*command, "--hardware", arguments->hardware,
            "The ceilings that `tessera bench all` measured on the trace's machine")
      ->check(existing_file());
  command
      ->add_option(
          "--gemm-peak", arguments->gemm_peak,
          "The best matrix-product rate, GFLOP/s; left out: the hardware file's or the run's")
      ->check(number_above_zero());
  command
      ->add_option("--memory-bandwidth", arguments->memory_bandwidth,
                   "The memory's bandwidth, read and written, GB/s; left out: the hardware "
                   "file's; without one nothing is judged by it")
      ->check(number_above_zero());
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([arguments] { run_summarize(*arguments); });
}

}  // namespace

void add_trace_command(CLI::App& app) {
  CLI::App* trace = app.add_subcommand("trace", "Read the trace of a training step");
  trace->require_subcommand(1);
  add_summarize(*trace);
  add_draw(*trace);
}

}  // namespace tessera
