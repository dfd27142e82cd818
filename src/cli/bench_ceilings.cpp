#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/threads.h"
#include "cli/bench_commands.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "hardware/measure_ceilings.h"
#include "model/model_config.h"

// The commands `bench gemm`, `bench memory` and `bench all`. They measure the ceilings of a
// machine: the rates of matrix products and the bandwidth of memory, which no step exceeds.

namespace tessera {
namespace {

/// The arguments of `gemm`, `memory` and `all`.
struct CeilingArguments {
  CeilingOptions options;
  GemmSweep gemm;  // its types and layouts are those of `precisions` and `layouts`
  std::string device{word(Device::cpu)};
  std::vector<std::string> precisions;
  std::vector<std::string> layouts{std::string(word(GemmLayout::forward))};
  std::vector<int64_t> sizes;  // of the arrays, in bytes; empty: chosen by the caches
  double memory_seconds = MemorySweep{}.seconds;
  bool json = false;
  std::string picture;  // empty: none
  std::string output = "hardware.json";
};

void add_sizes(CLI::App& command, const std::string& name, std::vector<int64_t>& sizes,
               const std::string& help) {
  add_list(command, name, sizes, help)->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
}

/// Adds the arguments of `gemm` and `all` about matrix products.
void add_gemm_arguments(CLI::App& command, CeilingArguments& arguments) {
  add_sizes(command, "--m", arguments.gemm.m, "Rows of A and C");
  add_sizes(command, "--n", arguments.gemm.n, "Columns of B and C");
  add_sizes(command, "--k", arguments.gemm.k, "Columns of A, rows of B");
  add_list(command, "--precision", arguments.precisions, "Precisions; left out: bf16 and fp32")
      ->check(CLI::IsMember(words_of<Precision>()));
  add_list(command, "--layout", arguments.layouts,
           "The products of a linear layer, whose weight is stored [out, in]: forward, C = A B "
           "with B stored [N,K]; input_gradient, C = A B with B stored [K,N]; weight_gradient, C "
           "+= A B with A stored [K,M], in the type of sums")
      ->check(CLI::IsMember(words_of<GemmLayout>()));
  add_number(command, "--seconds", arguments.gemm.seconds, 0, kMostSweepSeconds,
             "About how long the matrix products of a precision are measured; each four times at "
             "least");
}

GemmSweep gemm_sweep(const CeilingArguments& arguments) {
  GemmSweep sweep = arguments.gemm;
  sweep.dtypes.clear();
  for (const std::string& precision : arguments.precisions) {
    sweep.dtypes.push_back(
        compute_dtype(precision_on(from_word<Device>(arguments.device), precision)));
  }
  sweep.layouts.clear();
  for (const std::string& layout : arguments.layouts) {
    sweep.layouts.push_back(from_word<GemmLayout>(layout));
  }
  return sweep;
}

MemorySweep memory_sweep(const CeilingArguments& arguments) {
  return {.bytes = arguments.sizes, .seconds = arguments.memory_seconds};
}

/// Measures products, memory or both. Both go into the file --output; one alone is shown as asked.
void run(const CeilingArguments& arguments, bool gemm, bool memory) {
  const bool all = gemm && memory;
  if (all) require_writable(arguments.output);
  CeilingOptions options = arguments.options;
  options.device = from_word<Device>(arguments.device);
  if (gemm) options.gemm = gemm_sweep(arguments);
  if (memory) options.memory = memory_sweep(arguments);
  if (!all) require_picture(arguments.picture);
  const InterruptGuard guard;
  const MeasuredCeilings measured = measure_ceilings(options, Logger());
  if (all) {
    write_file(arguments.output, hardware_json(measured.hardware));
    fmt::print("{}\n{} holds all of it\n", measured.text(), arguments.output);
    return;
  }
  fmt::print("{}", arguments.json ? hardware_json(measured.hardware) : measured.text());
  if (!arguments.picture.empty()) write_file(arguments.picture, measured.picture());
}

/// Adds a command that measures matrix products, memory or both.
void add_ceiling_command(CLI::App& bench, const char* name, const char* help, bool gemm,
                         bool memory) {
  CLI::App& command = *bench.add_subcommand(name, help);
  auto arguments = std::make_shared<CeilingArguments>();
  if (gemm && memory) {
    arguments->layouts = words_of<GemmLayout>();
    add_output(command, "--output", arguments->output, "The file that is written")
        ->capture_default_str();
  }
  if (gemm) add_gemm_arguments(command, *arguments);
  if (memory) {
    add_size_list(command, "--sizes", arguments->sizes, "",
                  "Bytes of all arrays of all threads: 64KiB,16MiB,...; left out: 16 KiB a thread "
                  "to four times the last-level caches");
  }
  if (!gemm) {
    add_number(command, "--seconds", arguments->memory_seconds, 0, 1e6,
               "About how long each loop of a size is measured");
  }
  add_number(command, "--threads", arguments->options.threads, 0, kMostThreads,
             "Threads; 0: one for each usable core");
  add_word<Device>(command, "--device", arguments->device, "The device that is measured");
  if (!(gemm && memory)) {
    command.add_flag("--json", arguments->json, "One JSON object on standard output");
    add_picture(command, arguments->picture);
  }
  command.callback([=] { run(*arguments, gemm, memory); });
}

}  // namespace

void add_bench_gemm(CLI::App& bench) {
  add_ceiling_command(bench, "gemm",
                      "Matrix products C[M,N] = A B of A [M,K] and B [K,N], of every size given, "
                      "and large square ones",
                      /*gemm=*/true, /*memory=*/false);
}

void add_bench_memory(CLI::App& bench) {
  add_ceiling_command(bench, "memory",
                      "Bandwidth of copying, scaling, adding and updating arrays, from "
                      "first-level cache to memory",
                      /*gemm=*/false, /*memory=*/true);
}

void add_bench_all(CLI::App& bench) {
  add_ceiling_command(bench, "all",
                      "gemm and memory into one file, which `train` reads as run.hardware",
                      /*gemm=*/true, /*memory=*/true);
}

}  // namespace tessera
