#include <cstdio>
#include <limits>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "cli/options.h"
#include "cli/several_processes.h"
#include "comm/processes.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "plan/balance_stages.h"
#include "verify/verify.h"

namespace tessera {
namespace {

struct VerifyArguments {
  ConfigArguments config;
  std::string phase;
  int ranks = 0;  ///< threads of this process; 0: not given
  VerifyOptions options;
  bool full = false;  ///< no limit on the work
  bool json = false;
};

/// Verifies with threads, or as one of several processes. Then the first process reports.
void verify_with(VerifyArguments& arguments, Processes* processes) {
  refuse_thread_ranks(processes, arguments.ranks);
  if (processes == nullptr && arguments.ranks == 0) throw CLI::RequiredError("--ranks");
  const RunConfig config = resolve(arguments.config.load());
  if (arguments.full) arguments.options.work_limit = std::numeric_limits<double>::infinity();
  const Stopwatch watch;
  arguments.options.progress = [&](const std::string& part) {
    fmt::print(stderr, "verify: {:.0f} s: {}\n", watch.seconds(), part);
  };
  const Mesh mesh = mesh_of_started_ranks(
      config, processes, arguments.ranks,
      [](const std::string& sentence) { fmt::print(stderr, "verify: {}\n", sentence); });
  bool passed = true;
  const RunConfig cut = with_stage_layers(config, mesh);  // the same in all phases
  for (const ChosenPhase& phase : choose_phases(cut, arguments.phase)) {
    if (!phase.name.empty()) fmt::print(stderr, "verify: {}\n", phase.name);
    const std::optional<Verification> verification =
        processes != nullptr ? verify_as_process(phase.config, mesh, arguments.options, *processes)
                             : verify(phase.config, mesh, arguments.options);
    if (!verification) continue;  // the first process reports
    if (!phase.name.empty() && !arguments.json) fmt::print("{}:\n", phase.name);
    fmt::print("{}", arguments.json ? verification_json(*verification, phase.name)
                                    : verification_text(*verification));
    passed = passed && verification->passed();
  }
  if (!passed) throw CommandStatus{1};
}

}  // namespace

void add_verify_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "verify", "Check that a layout of ranks computes the model that one rank computes");
  auto arguments = std::make_shared<VerifyArguments>();
  add_config_arguments(*command, arguments->config);
  add_phase_argument(*command, arguments->phase, "all whose programs differ, one after the other");
  command
      ->add_option("--ranks", arguments->ranks,
                   "Ranks as threads of this process, laid out as [parallel] says. Under mpirun or "
                   "srun each process is a rank, and this is left out")
      ->check(CLI::Range(2, kMostRanks));
  add_number(*command, "--steps", arguments->options.steps, 1, 1000,
             "Optimizer steps that are compared");
  command
      ->add_option(
          "--context", arguments->options.context,
          "Positions of a sequence; left out: those of the run, or fewer if they are too much "
          "work or do not fit in memory")
      ->check(number_from(1));
  command->add_flag("--full", arguments->full,
                    "The configured micro-batch and context, however long that takes, if they fit "
                    "in memory");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([arguments] {
    const std::unique_ptr<Processes> processes = join_processes(arguments->config.rank_timeout());
    run_as_one_process(processes.get(), [&] { verify_with(*arguments, processes.get()); });
  });
}

}  // namespace tessera
