#include <algorithm>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "config/mesh_of.h"
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
  int ranks = 1;
  int rank = 0;
  ExplainOptions options;
  bool json = false;
};

void print(const ExplainArguments& arguments, const RunConfig& config, const StepPlan& plan,
           const Fit* fit = nullptr) {
  fmt::print("{}",
             arguments.json ? explain_json(plan, fit) : explain(config, plan, arguments.options));
}

MeshRank place_of(const ExplainArguments& arguments, const RunConfig& config) {
  const Mesh mesh = mesh_of(config, arguments.ranks);
  if (arguments.rank < 0 || arguments.rank >= mesh.ranks()) {
    throw Error("--rank is {}; the run has {} ({}), counted from 0", arguments.rank,
                mesh.ranks() == 1 ? "1 rank" : fmt::format("{} ranks", mesh.ranks()), mesh.text());
  }
  return {mesh, arguments.rank};
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
  const StepPlan plan = plan_step(there, run_target(there, facts), place_of(arguments, there));
  const Fit fit = fit_on(there, plan, hardware);
  print(arguments, there, plan, &fit);
  if (!arguments.json) fmt::print("{}", fit_text(fit, there));
}

void run(const ExplainArguments& arguments) {
  const RunConfig config = arguments.config.load();
  if (arguments.hardware.empty()) {
    const RunConfig here = resolve(config);
    const StepPlan plan =
        plan_step(here, run_target(here, nullptr, arguments.ranks), place_of(arguments, here));
    print(arguments, here, plan);
    if (!arguments.json) fmt::print("{}", explain_fit(here, plan));
  } else {
    const Hardware hardware = read_hardware(arguments.hardware);
    if (hardware.accelerator) return run_for(arguments, hardware, config);
    Target target = target_of(hardware.processor);
    if (config.run.threads > 0) target.threads = static_cast<int>(config.run.threads);
    target.threads = std::max(1, target.threads / arguments.ranks);
    const RunConfig there = resolve_data(config);
    print(arguments, there, plan_step(there, target, place_of(arguments, there)));
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
  command->add_option("--ranks", arguments->ranks, "Ranks, laid out as [parallel] says")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  command->add_option("--rank", arguments->rank, "The rank whose program is shown, counted from 0")
      ->capture_default_str();
  command->add_flag("--all", arguments->options.all_layers, "Every layer, not only the first");
  command->add_flag("--types", arguments->options.types,
                    "How each result lies over the axes of the mesh");
  command->add_flag("--json", arguments->json, "JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace tessera
