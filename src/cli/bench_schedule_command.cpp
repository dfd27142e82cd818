#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/bench_commands.h"
#include "cli/config_arguments.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "cli/several_processes.h"
#include "comm/processes.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "config/warnings.h"
#include "pipeline/picture.h"
#include "plan/balance_stages.h"
#include "train/bench_schedule.h"

namespace tessera {
namespace {

struct ScheduleArguments {
  ConfigArguments config;
  int ranks = 1;
  std::string phase;
  std::string times{word(PassRule::equal)};
  std::optional<double> mean_seconds;
  bool computes_update = false;
  RepeatArguments repeats{.repeats = 5, .warmup = 1};
  std::string picture;  // empty: none
  std::string trace;    // empty: none

  PassLengths lengths() const {
    PassLengths result{.mean_seconds = mean_seconds.value_or(PassLengths{}.mean_seconds),
                       .path = {},
                       .computes_update = computes_update};
    for (const PassRule rule : {PassRule::equal, PassRule::flops, PassRule::hardware}) {
      if (times != word(rule)) continue;
      if (mean_seconds && rule == PassRule::hardware) {
        throw Error("--seconds is for --times equal and flops; run.hardware gives the seconds");
      }
      result.rule = rule;
      return result;
    }
    if (!fs::exists(times)) {
      throw Error(
          "--times is {}; expected \"equal\", \"flops\", \"hardware\" or a file, and there is no "
          "such "
          "file",
          times);
    }
    if (mean_seconds) {
      throw Error("--seconds is for --times equal and flops; the times of {} are seconds", times);
    }
    result.rule = PassRule::file;
    result.path = times;
    return result;
  }
};

/// Measures on ranks that are threads, or processes. The first process reports.
void run(const ScheduleArguments& arguments, Processes* processes) {
  refuse_thread_ranks(processes, arguments.ranks);
  const bool traces = !arguments.trace.empty();
  const bool is_first = processes == nullptr || processes->rank() == 0;
  if (is_first) require_picture(arguments.picture);
  if (is_first && traces) require_writable(arguments.trace);
  const RunConfig config = resolve(arguments.config.load());
  const Logger logger = is_first ? Logger() : Logger::silent();
  const auto warn = [&](const std::string& sentence) { logger.warn("{}", sentence); };
  const Mesh mesh = mesh_of_started_ranks(config, processes, arguments.ranks, warn);
  // All phases have the layers of the first one.
  const RunConfig phase =
      choose_phases(with_stage_layers(config, mesh), arguments.phase).front().config;
  for (const std::string& sentence : config_warnings(config, mesh)) warn(sentence);
  const InterruptGuard guard;
  const Repeats repeats = arguments.repeats.make_repeats("schedule");
  std::optional<ScheduleMeasurement> measurement;
  if (processes == nullptr) {
    measurement = measure_schedule(phase, mesh, arguments.lengths(), repeats, traces);
  } else {
    measurement = measure_schedule(phase, mesh, arguments.lengths(), repeats, *processes, traces);
  }
  if (!measurement) return;
  fmt::print("{}",
             arguments.repeats.json ? schedule_json(*measurement) : schedule_text(*measurement));
  if (traces) {
    write_file(arguments.trace, measurement->traces.text);
    const std::string warning = measurement->traces.warning(arguments.trace);
    if (!warning.empty()) warn(warning);
  }
  if (arguments.picture.empty()) return;
  write_file(arguments.picture, draw(measurement->schedule, measurement->measured.back()));
}

}  // namespace

void add_bench_schedule(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "schedule",
      "The pipeline schedule of a configuration, on ranks that are threads or, under mpirun or "
      "srun, processes: passes take set times instead of computing, and messages are real; needs "
      "no data where model.vocabulary_size is set");
  auto arguments = std::make_shared<ScheduleArguments>();
  add_config_arguments(*command, arguments->config);
  add_number(*command, "--ranks", arguments->ranks, 1, kMostThreads,
             "Ranks, as threads of this process");
  add_input(*command, "--times", arguments->times,
            "How long passes take: \"equal\" times, \"flops\" for times in proportion to their "
            "FLOPs, \"hardware\" for times calculated from the rates of run.hardware, or a JSON "
            "file with the seconds of \"forward\", \"input_gradients\" and "
            "\"weight_gradients\", each a number or an array with one number for each chunk")
      ->capture_default_str();
  command
      ->add_option("--seconds", arguments->mean_seconds,
                   fmt::format("The mean time of a stage's forward, input gradients and weight "
                               "gradients of one micro-batch, for equal times and FLOPs; left out: "
                               "{}",
                               PassLengths{}.mean_seconds))
      ->check(CLI::Range(1e-4, 60.0));
  command->add_flag("--compute-update", arguments->computes_update,
                    "The update computes too, on values without meaning; left out: it takes the "
                    "time of its collectives alone");
  add_number(*command, "--repeats", arguments->repeats.repeats, 1, 1000000, "Measured runs");
  add_number(*command, "--warmup", arguments->repeats.warmup, 0, 1000000,
             "Runs before them that do not count");
  add_phase_argument(*command, arguments->phase, "the first");
  command->add_flag("--json", arguments->repeats.json, "Print JSON");
  add_output(*command, "--svg", arguments->picture,
             "A picture of the last run as well, to this file");
  add_output(*command, "--trace", arguments->trace,
             "A trace of all ranks in the last measured step as well, to this file, for `tessera "
             "trace draw` and `tessera trace summarize`");
  command->callback([arguments] {
    const std::unique_ptr<Processes> processes = join_processes(arguments->config.rank_timeout());
    run_as_one_process(processes.get(), [&] { run(*arguments, processes.get()); });
  });
}

}  // namespace tessera
