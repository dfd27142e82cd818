#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "config/resolve.h"
#include "hardware/hardware_file.h"
#include "hardware/target.h"
#include "plan/explain.h"
#include "plan/run_target.h"

namespace tessera {
namespace {

struct ExplainArguments {
  ConfigArguments config;
  std::string hardware;
  int rank = 0;
  bool all = false;
  bool json = false;
};

void print(const ExplainArguments& arguments, const RunConfig& config, const StepPlan& plan) {
  fmt::print("{}",
             arguments.json ? explain_json(config, plan) : explain(config, plan, arguments.all));
}

void run(const ExplainArguments& arguments) {
  if (arguments.rank != 0) {
    throw Error("--rank is {}; the run has 1 rank, number 0", arguments.rank);
  }
  const RunConfig config = arguments.config.load();
  if (arguments.hardware.empty()) {
    const RunConfig here = resolve(config);
    const StepPlan plan = plan_step(here, run_target(here));
    print(arguments, here, plan);
    if (!arguments.json) fmt::print("{}", explain_fit(plan));
  } else {
    Target target = target_of(read_hardware(arguments.hardware).processor);
    if (config.run.threads > 0) target.threads = static_cast<int>(config.run.threads);
    const RunConfig there = resolve_data(config);
    print(arguments, there, plan_step(there, target));
  }
}

}  // namespace

void add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "explain", "Show the step that a configuration stands for: operations, FLOPs, memory");
  auto arguments = std::make_shared<ExplainArguments>();
  add_config_arguments(*command, arguments->config);
  command
      ->add_option("--hardware", arguments->hardware,
                   "For the machine on which `tessera bench all` wrote this file; left out: this "
                   "machine")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--rank", arguments->rank,
                   "The rank whose program is shown; only 0 in this build")
      ->capture_default_str();
  command->add_flag("--all", arguments->all, "Every layer, not only the first");
  command->add_flag("--json", arguments->json, "JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace tessera
