#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/interrupt.h"
#include "cli/bench_commands.h"
#include "cli/config_arguments.h"
#include "cli/file_options.h"
#include "config/resolve.h"
#include "plan/product_peak.h"
#include "plan/run_target.h"
#include "plan/tuned_products.h"
#include "train/bench_kernels.h"
#include "train/bench_step.h"

namespace tessera {
namespace {

/// The arguments of a measurement of a configuration's steps.
struct StepArguments {
  ConfigArguments config;
  RepeatArguments repeats;
  std::string hardware;
  std::string data;  // a folder of prepared data; empty: random tokens
  std::string phase;

  RunConfig load() const {
    RunConfig loaded = config.load();
    if (!data.empty()) {
      loaded.data.directory = data;
      loaded.data.sources.clear();
    }
    if (repeats.threads > 0) loaded.run.threads = repeats.threads;
    if (!hardware.empty()) loaded.run.hardware = hardware;
    return resolve(loaded);
  }
};

/// Adds a command that measures the steps of a configuration by measure(arguments). A signal ends
/// the measurement. Returns the command and its arguments.
template <typename Measure>
auto add_step_command(CLI::App& bench, const char* name, const char* description,
                      const char* default_phase, Measure measure) {
  auto arguments = std::make_shared<StepArguments>();
  CLI::App* command = bench.add_subcommand(name, description);
  add_config_arguments(*command, arguments->config);
  add_repeat_arguments(*command, arguments->repeats, "--steps");
  add_input(*command, "--hardware", arguments->hardware,
            "A hardware file of this machine, such as those in configs/hardware: the MFU is given "
            "of its peak too; left out: run.hardware")
      ->check(existing_file());
  add_phase_argument(*command, arguments->phase, default_phase);
  command->callback([arguments, measure] {
    const InterruptGuard guard;
    measure(*arguments);
  });
  return std::pair(command, arguments);
}

void measure_whole_steps(const StepArguments& arguments) {
  const RunConfig config = arguments.load();
  Runtime runtime(run_target(config), open_device(config));
  const std::optional<ProductPeak> peak = configured_peak(config, runtime.accelerator());
  use_tuned_products(config, runtime);
  for (const ChosenPhase& phase : choose_phases(config, arguments.phase)) {
    const StepMeasurement measurement =
        measure_step(phase.config, arguments.repeats.make_repeats("step"), runtime,
                     arguments.data.empty() ? StepTokens::random : StepTokens::prepared);
    MeasuredOn machine = measured_on(config.train.precision, runtime, config.run.bind_threads);
    machine.hardware_peak = peak;
    if (!phase.name.empty() && !arguments.repeats.json) fmt::print("{}:\n", phase.name);
    fmt::print("{}", arguments.repeats.json ? step_json(measurement, machine, phase.name)
                                            : step_text(measurement, machine));
  }
}

void measure_operations(const StepArguments& arguments) {
  const RunConfig config = choose_phases(arguments.load(), arguments.phase).front().config;
  const KernelsReport report = measure_kernels(config, arguments.repeats.make_repeats("kernels"));
  fmt::print("{}", arguments.repeats.json ? report.json() : report.text());
}

}  // namespace

void add_bench_step(CLI::App& bench) {
  const auto [command, arguments] = add_step_command(
      bench, "step",
      "Whole training steps of a configuration on random tokens; needs no data where "
      "model.vocabulary_size is set",
      "all whose programs differ, one after the other", measure_whole_steps);
  add_input(*command, "--data", arguments->data,
            "A folder of prepared data: its tokens are taken instead of random ones, so that "
            "routers choose as on text")
      ->check(CLI::ExistingDirectory.description(""));
}

void add_bench_kernels(CLI::App& bench) {
  add_step_command(
      bench, "kernels",
      "Each operation of a configuration's steps on the device that it names, beside what the "
      "device copies and multiplies",
      "the first", measure_operations);
}

}  // namespace tessera
