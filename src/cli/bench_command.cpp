#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/threads.h"
#include "cli/bench_commands.h"
#include "cli/commands.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "device/device.h"
#include "plan/blocks/turns.h"
#include "tensor/device_precision.h"

namespace tessera {

Repeats RepeatArguments::make_repeats(const std::string& name) const {
  Repeats result{.warmup = warmup, .measured = repeats, .before = {}};
  if (turns) {
    result.turns = true;
    result.before = [](int64_t) { return take_turn(stdout, STDIN_FILENO); };
  } else {
    const auto progress = std::make_shared<Progress>();
    result.before = [progress, name, count = repeats](int64_t repeat) {
      const bool is_last = repeat + 1 == count;
      progress->show(fmt::format("{}: run {} of {}", name, repeat + 1, count), is_last);
      return true;
    };
  }
  return result;
}

void add_repeat_arguments(CLI::App& command, RepeatArguments& arguments,
                          const std::string& repeats_name) {
  add_number(command, "--threads", arguments.threads, 0, kMostThreads,
             "Threads; 0: one for each usable core");
  add_number(command, repeats_name, arguments.repeats, 1, 1000000, "Measured runs");
  add_number(command, "--warmup", arguments.warmup, 0, 1000000,
             "Runs before them that do not count");
  command.add_flag("--json", arguments.json, "One JSON object a line, on standard output");
  command.add_flag("--turns", arguments.turns,
                   "Print \"turn\" before each measured run and wait for a line of standard input; "
                   "its end ends the runs: for taking turns with another program");
}

Precision precision_on(Device device, const std::string& precision) {
  const auto result = from_word<Precision>(precision);
  require_precision(device, result, "--precision", "bf16 or fp32, or --device cpu");
  return result;
}

void add_picture(CLI::App& command, std::string& picture) {
  add_output(command, "--svg", picture, "A picture as well, to this file");
}

void require_picture(const std::string& path) {
  if (path.empty()) return;
  if (fs::path(path).extension() != ".svg") {
    throw Error("--svg is {}; pictures are SVG, name a file that ends in .svg", path);
  }
  require_writable(path);
}

void add_bench_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench",
      "Measure what this machine or a device of it reaches: "
      "matrix products, memory, collectives, a model's layers, whole steps, pipelines");
  command->require_subcommand(1);
  add_bench_all(*command);
  add_bench_gemm(*command);
  add_bench_memory(*command);
  add_bench_moe(*command);
  add_bench_attention(*command);
  add_bench_step(*command);
  add_bench_kernels(*command);
  add_bench_products(*command);
  add_bench_collectives(*command);
  add_bench_schedule(*command);
}

}  // namespace tessera
