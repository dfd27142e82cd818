#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/interrupt.h"
#include "cli/bench_commands.h"
#include "cli/config_arguments.h"
#include "config/resolve.h"
#include "plan/run_target.h"
#include "train/bench_kernels.h"
#include "train/bench_step.h"

namespace tessera {

void add_bench_step(CLI::App& bench) {
  struct Arguments {
    ConfigArguments config;
    RepeatArguments repeats;
  };
  CLI::App* command = bench.add_subcommand(
      "step",
      "Whole training steps of a configuration on random tokens; needs no data where "
      "model.vocabulary_size is set");
  auto arguments = std::make_shared<Arguments>();
  add_config_arguments(*command, arguments->config);
  add_repeat_arguments(*command, arguments->repeats, "--steps");
  command->callback([arguments] {
    const InterruptGuard guard;
    RunConfig config = arguments->config.load();
    if (arguments->repeats.threads > 0) config.run.threads = arguments->repeats.threads;
    config = resolve(config);
    const StepMeasurement measurement = measure_step(config, arguments->repeats.make("step"));
    Runtime runtime(run_target(config));
    const MeasuredOn on = measured_on(config.train.precision, runtime, config.run.bind_threads);
    fmt::print("{}",
               arguments->repeats.json ? step_json(measurement, on) : step_text(measurement, on));
  });
}

void add_bench_kernels(CLI::App& bench) {
  struct Arguments {
    ConfigArguments config;
    RepeatArguments repeats;
  };
  CLI::App* command = bench.add_subcommand(
      "kernels",
      "Each operation of a configuration's steps on the device that it names, beside what the "
      "device copies and multiplies");
  auto arguments = std::make_shared<Arguments>();
  add_config_arguments(*command, arguments->config);
  add_repeat_arguments(*command, arguments->repeats, "--steps");
  command->callback([arguments] {
    const InterruptGuard guard;
    RunConfig config = arguments->config.load();
    if (arguments->repeats.threads > 0) config.run.threads = arguments->repeats.threads;
    const KernelsReport report =
        measure_kernels(resolve(config), arguments->repeats.make("kernels"));
    fmt::print("{}", arguments->repeats.json ? report.json() : report.text());
  });
}

}  // namespace tessera
