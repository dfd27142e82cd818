#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "train/verify.h"

namespace tessera {

void add_verify_command(CLI::App& app) {
  struct Arguments {
    ConfigArguments config;
    int ranks = 2;
    VerifyOptions options;
    bool json = false;
  };
  CLI::App* command = app.add_subcommand(
      "verify", "Check that a layout of ranks computes the model that one rank computes");
  auto arguments = std::make_shared<Arguments>();
  add_config_arguments(*command, arguments->config);
  command
      ->add_option("--ranks", arguments->ranks,
                   "Ranks as threads of this process, laid out as "
                   "[parallel] says")
      ->required()
      ->check(CLI::Range(2, kMostRanks));
  command->add_option("--steps", arguments->options.steps, "Optimizer steps that are compared")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--context", arguments->options.context,
                   "Positions of a sequence; left out: up to 64, because fp64 is slow")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", arguments->json, "JSON");
  command->callback([arguments] {
    const RunConfig config = resolve(arguments->config.load());
    const Stopwatch watch;
    arguments->options.progress = [&](const std::string& part) {
      fmt::print(stderr, "verify: {:.0f} s: {}\n", watch.seconds(), part);
    };
    const Verification found =
        verify(config, mesh_of(config, arguments->ranks), arguments->options);
    fmt::print("{}", arguments->json ? verification_json(found) : verification_text(found));
    if (!found.passed()) throw CommandStatus{1};
  });
}

}  // namespace tessera
