// run() finds the machine: this one, the processor of a hardware file, or its accelerator.
// explain_run() then plans the step for that ExplainedMachine and prints what it found. A plan of a
// large model takes seconds, so a line on the terminal shows the progress.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "base/threads.h"
#include "cli/bench_commands.h"
#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "config/resolve.h"
#include "config/warnings.h"
#include "hardware/hardware_file.h"
#include "hardware/processor.h"
#include "pipeline/picture.h"
#include "plan/balance_stages.h"
#include "plan/explain.h"
#include "plan/overlap_step.h"
#include "plan/run_target.h"
#include "tensor/device_precision.h"

namespace tessera {
namespace {

struct ExplainArguments {
  ConfigArguments config;
  std::string hardware;
  int ranks = 1;
  int rank = 0;
  std::string phase;
  ExplainOptions options;
  bool json = false;
  std::string picture;  // empty: none
};

MeshRank chosen_rank(const ExplainArguments& arguments, const RunConfig& config) {
  const Mesh mesh = mesh_of(config, arguments.ranks);
  if (arguments.rank < 0 || arguments.rank >= mesh.ranks()) {
    throw Error("--rank is {}; the run has {} ({}), counted from 0", arguments.rank,
                mesh.ranks() == 1 ? "1 rank" : fmt::format("{} ranks", mesh.ranks()), mesh.text());
  }
  return {mesh, arguments.rank};
}

/// The machine that a run is explained for.
struct ExplainedMachine {
  /// Plans a configuration for a rank of the machine.
  std::function<StepPlan(const RunConfig& config, const MeshRank& mesh_rank)> plan;
  /// Says whether the plan fits and how fast it is (fit_on()). Only for accelerators of files.
  std::function<Fit(const RunConfig& config, const StepPlan& plan)> fit = {};
};

/// The progress of an explanation. Shows nothing unless standard error is a terminal that can draw
/// over a line.
class ExplainProgress {
 public:
  /// `all` is the number of plans, fits and predictions.
  explicit ExplainProgress(int64_t all) : all_(all) {}

  /// Shows what begins.
  void next(const std::string& what) {
    const double fraction = static_cast<double>(begun_++) / static_cast<double>(all_);
    if (shown_) progress_.show(Progress::bar(fraction, watch_.seconds(), what));
  }
  /// Removes the line, before other output follows.
  void clear() { progress_.clear(); }

 private:
  bool shown_ = stderr_can_redraw();
  int64_t all_;
  int64_t begun_ = 0;
  Stopwatch watch_;
  Progress progress_;
};

/// Returns the number of plans, fits and predictions that explain_run() makes.
int64_t count_parts(const RunConfig& config, const ExplainedMachine& machine, bool json) {
  const auto phases = std::ssize(config.train.phases);
  const int64_t chunks = model_chunks(config.parallel);
  const int64_t plans =
      1 + phases + (phases > 0 && !json ? 1 : 0) + (chunks > 1 ? config.parallel.pipeline : 0);
  return plans + (machine.fit ? 1 + phases : 0) + 1;
}

/// Returns the machine with plans and fits that show the progress.
ExplainedMachine with_progress(const ExplainedMachine& machine, ExplainProgress& progress) {
  ExplainedMachine result{.plan = [&](const RunConfig& config, const MeshRank& mesh_rank) {
    progress.next(fmt::format("planning rank {}", mesh_rank.rank));
    return machine.plan(config, mesh_rank);
  }};
  if (machine.fit) {
    result.fit = [&](const RunConfig& config, const StepPlan& plan) {
      progress.next("finding the largest micro-batch that fits");
      return machine.fit(config, plan);
    };
  }
  return result;
}

/// Returns the stages of a pipeline, whose schedule it draws if --svg asks for that; none if there
/// is no pipeline.
std::optional<StagesAccount> explain_stages(const ExplainArguments& arguments,
                                            const RunConfig& config, const Mesh& mesh,
                                            const ExplainedMachine& machine) {
  std::optional<StagesAccount> account = stages_account(config, mesh, [&](int rank) {
    return machine.plan(config, {mesh, rank});
  });
  if (!arguments.picture.empty()) {
    write_file(arguments.picture, draw(account->schedule, account->flops_as_times));
  }
  return account;
}

/// Explains a run: its phases if it has any, the step of one of them, and the stages of a pipeline.
void explain_run(const ExplainArguments& arguments, const RunConfig& given,
                 const MeshRank& mesh_rank, const ExplainedMachine& explained) {
  if (!arguments.picture.empty() && model_chunks(given.parallel) == 1) {
    throw Error(
        "--svg {}: it draws the schedule of a pipeline, and the model is in one chunk; set "
        "parallel.pipeline or parallel.virtual_stages above 1, or leave --svg out",
        arguments.picture);
  }
  const Logger logger;
  for (const std::string& sentence : config_warnings(given, mesh_rank.mesh)) {
    logger.warn("{}", sentence);
  }
  if (const std::string warning = overlap_warning(given, mesh_rank.mesh); !warning.empty()) {
    logger.warn("{}", warning);
  }
  const RunConfig config = with_stage_layers(given, mesh_rank.mesh);  // the same in all phases
  const ChosenPhase chosen = choose_phases(config, arguments.phase).front();
  ExplainProgress progress(count_parts(config, explained, arguments.json));
  const ExplainedMachine machine = with_progress(explained, progress);
  const StepPlan plan = machine.plan(chosen.config, mesh_rank);
  std::vector<PhaseAccount> accounts;
  std::string phases;  // their table
  if (!config.train.phases.empty()) {
    accounts = phase_accounts(config, [&](const RunConfig& phase) {
      const StepPlan phase_plan = machine.plan(phase, mesh_rank);
      PhaseNeeds needs = phase_needs(phase_plan);
      if (machine.fit) needs.least_seconds = machine.fit(phase, phase_plan).seconds();
      return needs;
    });
    if (!arguments.json) {
      phases = fmt::format(
          "{}\nthe step of {}:\n",
          phases_table(accounts, machine.plan(config, mesh_rank).memory.arena_bytes), chosen.name);
    }
  }
  std::optional<Fit> fit;
  if (machine.fit) fit = machine.fit(chosen.config, plan);
  const std::optional<StagesAccount> stages =
      explain_stages(arguments, chosen.config, mesh_rank.mesh, machine);
  progress.next("predicting a step");
  const std::string explanation = arguments.json
                                      ? explain_json(chosen.config, plan, fit ? &*fit : nullptr,
                                                     accounts, stages ? &*stages : nullptr)
                                      : explain(chosen.config, plan, arguments.options);
  progress.clear();
  fmt::print("{}{}", phases, explanation);
  if (arguments.json) return;
  if (stages) fmt::print("\n{}", stages_table(*stages));
  if (stages && given.parallel.stage_layers.balanced) {
    fmt::print("parallel.stage_layers = \"balanced\" is {}\n", config.parallel.stage_layers.counts);
  }
  if (fit) fmt::print("{}", fit_text(*fit, chosen.config));
}

/// Explains a run for the accelerator of a hardware file.
void explain_for_accelerator(const ExplainArguments& arguments, const Hardware& hardware,
                             RunConfig config) {
  const AcceleratorFacts& facts = *hardware.accelerator;
  if (config.run.device != Device::cpu && config.run.device != facts.device) {
    throw Error("run.device is \"{}\", and {} is about {}, whose device is \"{}\"",
                word(config.run.device), arguments.hardware, facts.name, word(facts.device));
  }
  require_precision(facts.device, config.train.precision, "train.precision", R"("bf16" or "fp32")");
  config.run.device = facts.device;
  const RunConfig resolved = resolve_data(config);
  const MeshRank mesh_rank = chosen_rank(arguments, resolved);
  const auto plan_phase = [&](const RunConfig& phase, const MeshRank& rank) {
    return plan_step(phase, run_target(phase, facts), rank);
  };
  const auto fit_phase = [&](const RunConfig& phase, const StepPlan& plan) {
    return fit_on(phase, plan, hardware);
  };
  explain_run(arguments, resolved, mesh_rank, {plan_phase, fit_phase});
}

/// Explains a run for this machine, or for the processor or accelerator of a hardware file.
void run(const ExplainArguments& arguments) {
  require_picture(arguments.picture);
  const RunConfig config = arguments.config.load();
  if (arguments.hardware.empty()) {
    const RunConfig resolved = resolve(config);
    const MeshRank mesh_rank = chosen_rank(arguments, resolved);
    const auto plan_phase = [&](const RunConfig& phase, const MeshRank& rank) {
      return plan_step(phase, run_target(phase, nullptr, arguments.ranks), rank);
    };
    explain_run(arguments, resolved, mesh_rank, {plan_phase});
    if (!arguments.json) fmt::print("{}", explain_fit(resolved, plan_phase(resolved, mesh_rank)));
  } else {
    const Hardware hardware = read_hardware(arguments.hardware);
    if (hardware.accelerator) return explain_for_accelerator(arguments, hardware, config);
    Target target = target_of(hardware.processor);
    if (config.run.threads > 0) target.threads = static_cast<int>(config.run.threads);
    target.threads = threads_of_rank(target.threads, arguments.ranks);
    const RunConfig resolved = resolve_data(config);
    const MeshRank mesh_rank = chosen_rank(arguments, resolved);
    explain_run(arguments, resolved, mesh_rank, {[&](const RunConfig& phase, const MeshRank& rank) {
                  return plan_step(phase, target, rank);
                }});
  }
}

}  // namespace

void add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "explain", "Show the step that a configuration stands for: operations, FLOPs, memory");
  auto arguments = std::make_shared<ExplainArguments>();
  add_config_arguments(*command, arguments->config);
  add_phase_argument(*command, arguments->phase, "the first one's step, below a table of all");
  add_input(*command, "--hardware", arguments->hardware,
            "For the machine on which `tessera bench all` wrote this file, or for an accelerator "
            "of configs/hardware; left out: this machine")
      ->check(existing_file());
  add_number(*command, "--ranks", arguments->ranks, 1, kMostRanks,
             "Ranks, laid out as [parallel] says");
  command->add_option("--rank", arguments->rank, "The rank whose program is shown, counted from 0")
      ->capture_default_str();
  command->add_flag("--all", arguments->options.all_layers, "Every layer, not only the first");
  command->add_flag("--types", arguments->options.types,
                    "How each result lies over the axes of the mesh");
  command->add_flag("--json", arguments->json, "Print JSON");
  add_output(*command, "--svg", arguments->picture,
             "A picture of the pipeline's schedule as well, to this file");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace tessera
