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
#include "tensor/device_precision.h"

namespace tessera {
namespace {

struct ExplainArguments {
  ConfigArguments config;
  std::string hardware;
  int rank = 0;
  bool all = false;
  bool json = false;
};

void print(const ExplainArguments& arguments, const RunConfig& config, const StepPlan& plan,
           const Fit* fit = nullptr) {
  fmt::print("{}", arguments.json ? explain_json(config, plan, fit)
                                  : explain(config, plan, arguments.all));
}

/// Explains for the accelerator of a hardware file.
void run_for(const ExplainArguments& arguments, const Hardware& hardware, RunConfig config) {
  const AcceleratorFacts& facts = *hardware.accelerator;
  if (config.run.device != Device::cpu && config.run.device != facts.device) {
    throw Error("run.device is \"{}\", and {} is about {}, whose device is \"{}\"",
                word(config.run.device), arguments.hardware, facts.name, word(facts.device));
  }
  require_precision(facts.device, config.train.precision, "train.precision", R"("bf16" or "fp32")");
  config.run.device = facts.device;
  const RunConfig there = resolve_data(config);
  const StepPlan plan = plan_step(there, run_target(there, facts));
  const Fit fit = fit_on(there, plan, hardware);
  print(arguments, there, plan, &fit);
  if (!arguments.json) fmt::print("{}", fit_text(fit, there));
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
    if (!arguments.json) fmt::print("{}", explain_fit(here, plan));
  } else {
    const Hardware hardware = read_hardware(arguments.hardware);
    if (hardware.accelerator) return run_for(arguments, hardware, config);
    Target target = target_of(hardware.processor);
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
                   "For the machine on which `tessera bench all` wrote this file, or for an "
                   "accelerator of configs/hardware; left out: this machine")
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
