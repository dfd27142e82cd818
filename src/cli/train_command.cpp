#include <csignal>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "train/trainer.h"
#include "train/training_state.h"

namespace tessera {

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Pretrain a model as a TOML file says");
  struct Arguments {
    ConfigArguments config;
    TrainOptions options;
    bool quiet = false;
  };
  auto arguments = std::make_shared<Arguments>();
  add_config_arguments(*command, arguments->config);
  command->add_flag("--resume", arguments->options.resume,
                    "Go on from the run's newest complete checkpoint");
  command
      ->add_option("--ranks", arguments->options.ranks,
                   "Ranks, as threads of this process; [parallel] says how they share the work")
      ->check(CLI::Range(1, kMostThreads))
      ->capture_default_str();
  command->add_flag("--quiet", arguments->quiet, "No progress line");
  command->footer([] { return "The configuration's keys:\n\n" + describe_keys(); });
  command->callback([arguments] {
    const RunConfig config =
        arguments->config.load(arguments->options.resume ? resumed_model : initial_model);
    arguments->options.progress = !arguments->quiet;
    const InterruptGuard guard;
    std::signal(SIGPIPE, SIG_IGN);  // a closed reader of messages does not end the run
    train(config, arguments->options, Logger());
  });
}

}  // namespace tessera
