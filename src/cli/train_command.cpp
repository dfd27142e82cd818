#include <csignal>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/interrupt.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "cli/options.h"
#include "cli/several_processes.h"
#include "comm/processes.h"
#include "train/trainer.h"
#include "train/training_state.h"

namespace tessera {
namespace {

struct TrainArguments {
  ConfigArguments config;
  TrainOptions options;
  bool quiet = false;
};

/// Trains on ranks that are threads, or as one of several processes. A signal ends the run after a
/// save.
void run(TrainArguments& arguments, Processes* processes) {
  refuse_thread_ranks(processes, arguments.options.ranks);
  arguments.options.processes = processes;
  const RunConfig config =
      arguments.config.load(arguments.options.resume ? resumed_model : initial_model);
  arguments.options.progress = !arguments.quiet;
  const InterruptGuard guard;
  std::signal(SIGPIPE, SIG_IGN);  // the run goes on without a reader of its messages
  const bool first = processes == nullptr || processes->rank() == 0;
  train(config, arguments.options, first ? Logger() : Logger::silent());
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Pretrain a model as a TOML file says");
  auto arguments = std::make_shared<TrainArguments>();
  add_config_arguments(*command, arguments->config);
  command->add_flag("--resume", arguments->options.resume,
                    "Go on from the run's newest complete checkpoint");
  add_number(*command, "--ranks", arguments->options.ranks, 1, kMostThreads,
             "Ranks, as threads of this process; [parallel] says how they share the work. Under "
             "mpirun or srun each process is a rank");
  command->add_flag("--quiet", arguments->quiet, "No progress line");
  command->footer([] { return "The configuration's keys:\n\n" + describe_keys(); });
  command->callback([arguments] {
    const std::unique_ptr<Processes> processes = join_processes(arguments->config.rank_timeout());
    run_as_one_process(processes.get(), [&] { run(*arguments, processes.get()); });
  });
}

}  // namespace tessera
