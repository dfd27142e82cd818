#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "cli/commands.h"
#include "config/load_config.h"
#include "train/trainer.h"

namespace tessera {

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Pretrain a model as a TOML file says");
  struct Arguments {
    std::string config;
    std::vector<std::string> overrides;
    int ranks = 1;
    TrainOptions options;
    bool quiet = false;
  };
  auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG", arguments->config, "The configuration, a TOML file")->required();
  command
      ->add_option("--set", arguments->overrides,
                   "Override one key: section.key=VALUE (repeatable)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("--resume", arguments->options.resume,
                    "Go on from the run's newest complete checkpoint");
  command->add_option("--ranks", arguments->ranks, "Ranks as threads of this process")
      ->capture_default_str();
  command->add_flag("--quiet", arguments->quiet, "No progress line");
  command->footer([] { return "The configuration's keys:\n\n" + describe_keys(); });
  command->callback([arguments] {
    if (arguments->ranks != 1) {
      throw Error("--ranks is {}; this build trains on one rank", arguments->ranks);
    }
    const RunConfig config = load_config(arguments->config, arguments->overrides);
    arguments->options.progress = !arguments->quiet;
    const InterruptGuard guard;
    train(config, arguments->options, Logger());
  });
}

}  // namespace tessera
