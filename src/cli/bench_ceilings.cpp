#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/interrupt.h"
#include "base/physical_memory.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench_commands.h"
#include "cli/standard_output.h"
#include "hardware/gemm_sweep.h"
#include "hardware/hardware_report.h"
#include "hardware/memory_sweep.h"
#include "model/model.h"

namespace tessera {
namespace {

/// The arguments that `gemm`, `memory` and `all` have in common.
struct CeilingArguments {
  int threads = 0;
  bool json = false;
  std::string picture;

  Processor processor() const { return this_processor(threads_or_all(threads)); }
};

struct GemmArguments {
  GemmSweep sweep;  ///< without types and layouts
  std::vector<std::string> precisions;
  std::vector<std::string> layouts{std::string(kGemmLayouts.front())};
};

struct MemoryArguments {
  std::vector<std::string> sizes;
  double seconds = 0.1;
};

void add_threads(CLI::App& command, CeilingArguments& arguments) {
  command.add_option("--threads", arguments.threads, "0: all cores")
      ->check(CLI::Range(0, kMostThreads))
      ->capture_default_str();
}

void add_ceiling_arguments(CLI::App& command, CeilingArguments& arguments) {
  add_threads(command, arguments);
  command.add_flag("--json", arguments.json, "One JSON object on standard output");
  add_picture(command, arguments.picture);
}

void add_sizes(CLI::App& command, const std::string& name, std::vector<int64_t>& sizes,
               const std::string& help) {
  command.add_option(name, sizes, help)
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
}

/// Adds the arguments of `gemm` and `all` for matrix products.
void add_gemm_arguments(CLI::App& command, GemmArguments& arguments) {
  add_sizes(command, "--m", arguments.sweep.m, "Rows of A and C");
  add_sizes(command, "--n", arguments.sweep.n, "Columns of B and C");
  add_sizes(command, "--k", arguments.sweep.k, "Columns of A, rows of B");
  command.add_option("--precision", arguments.precisions, "Left out: bf16 and fp32")
      ->delimiter(',')
      ->check(CLI::IsMember(words_of<Precision>()));
  command
      .add_option("--layout", arguments.layouts,
                  "The products of a linear layer, whose weight is stored [out, in]: forward, C = "
                  "A B with B stored [N,K]; input_gradient, C = A B with B stored [K,N]; "
                  "weight_gradient, C += A B with A stored [K,M], in the type of sums")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(kGemmLayouts.begin(), kGemmLayouts.end())))
      ->capture_default_str();
  command
      .add_option("--seconds", arguments.sweep.seconds,
                  "About how long the matrix products of a precision are measured; each four "
                  "times at least")
      ->check(CLI::Range(0.0, kMostSweepSeconds))
      ->capture_default_str();
}

/// Adds the arguments of `memory` and `all` for working sets.
void add_memory_sizes(CLI::App& command, MemoryArguments& arguments) {
  command
      .add_option("--sizes", arguments.sizes,
                  "Bytes of all arrays of all threads: 64KiB,16MiB,...; left out: 16 KiB a thread "
                  "to four times the last-level caches")
      ->delimiter(',');
}

/// Returns the types to measure: those asked for, or all that the processor has.
std::vector<DType> dtypes_of(const std::vector<std::string>& precisions) {
  std::vector<DType> dtypes;
  for (const std::string& precision : precisions) {
    dtypes.push_back(compute_dtype(from_word<Precision>(precision)));
  }
  if (!dtypes.empty()) return dtypes;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    if (has_gemm(dtype)) {
      dtypes.push_back(dtype);
    } else {
      say(fmt::format("this processor has no {} matrix product; it is left out",
                      dtype_name(dtype)));
    }
  }
  return dtypes;
}

GemmSweep sweep_of(const GemmArguments& arguments) {
  GemmSweep sweep = arguments.sweep;
  sweep.dtypes = dtypes_of(arguments.precisions);
  sweep.layouts.clear();
  for (const std::string& layout : arguments.layouts) {
    sweep.layouts.push_back(gemm_layout_from_name(layout));
  }
  require_memory(sweep);
  return sweep;
}

std::vector<GemmRate> measure(const GemmSweep& sweep, int threads) {
  Progress progress;
  const Stopwatch watch;
  GemmSweepResult result =
      measure_gemm_sweep(sweep, threads, [&](const std::string& what, size_t done, size_t all) {
        const double fraction = static_cast<double>(done) / static_cast<double>(all);
        progress.show(Progress::bar(fraction, watch.seconds(), what), done == all);
      });
  for (const GemmRate& product : result.left_out) {
    say(fmt::format("left out, since a run would take longer than --seconds allows: {}",
                    describe(product)));
  }
  return result.rates;
}

std::vector<int64_t> sizes_of(const MemoryArguments& arguments, const Processor& processor) {
  std::vector<int64_t> sizes;
  for (const std::string& size : arguments.sizes) sizes.push_back(parse_bytes(size));
  require_memory(sizes);
  if (!sizes.empty()) return sizes;
  return memory_sweep_sizes(processor.last_level_cache, processor.threads, physical_memory() / 2);
}

std::vector<MemoryRate> measure(const std::vector<int64_t>& sizes, int threads, double seconds) {
  Progress progress;
  std::vector<MemoryRate> rates = measure_memory_sweep(
      sizes, threads, seconds, [&](const std::string& what) { progress.show(what); });
  progress.clear();
  return rates;
}

/// Prints the measurement and writes its picture. `text` and `picture` return it for people.
template <typename Text, typename Picture>
void report(const Hardware& hardware, const CeilingArguments& arguments, const Text& text,
            const Picture& picture) {
  if (arguments.json) {
    fmt::print("{}", hardware_json(hardware));
  } else {
    fmt::print("{}\n\n{}", describe(hardware.processor), text());
  }
  if (!arguments.picture.empty()) write_file(arguments.picture, picture());
}

}  // namespace

void add_bench_gemm(CLI::App& bench) {
  struct Arguments : CeilingArguments, GemmArguments {};
  CLI::App* command = bench.add_subcommand(
      "gemm",
      "Matrix products C[M,N] = A B of A [M,K] and B [K,N], of every size given, and large "
      "square ones");
  auto arguments = std::make_shared<Arguments>();
  add_gemm_arguments(*command, *arguments);
  add_ceiling_arguments(*command, *arguments);
  command->callback([arguments] {
    require_picture(arguments->picture);
    const GemmSweep sweep = sweep_of(*arguments);
    const InterruptGuard guard;
    Hardware hardware{arguments->processor(), {}, {}};
    hardware.gemms = measure(sweep, hardware.processor.threads);
    report(
        hardware, *arguments, [&] { return gemm_text(hardware, sweep); },
        [&] { return gemm_picture(hardware, sweep); });
  });
}

void add_bench_memory(CLI::App& bench) {
  struct Arguments : CeilingArguments, MemoryArguments {};
  CLI::App* command = bench.add_subcommand("memory",
                                           "Bandwidth of copying, scaling, adding and updating "
                                           "arrays, from first-level cache to memory");
  auto arguments = std::make_shared<Arguments>();
  add_memory_sizes(*command, *arguments);
  command
      ->add_option("--seconds", arguments->seconds,
                   "About how long each loop of a size is measured")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  add_ceiling_arguments(*command, *arguments);
  command->callback([arguments] {
    require_picture(arguments->picture);
    const InterruptGuard guard;
    Hardware hardware{arguments->processor(), {}, {}};
    hardware.memory = measure(sizes_of(*arguments, hardware.processor), hardware.processor.threads,
                              arguments->seconds);
    report(
        hardware, *arguments, [&] { return memory_text(hardware); },
        [&] { return memory_picture(hardware); });
  });
}

void add_bench_all(CLI::App& bench) {
  struct Arguments : CeilingArguments {
    std::string output = "hardware.json";
    GemmArguments gemm;
    MemoryArguments memory;
  };
  CLI::App* command = bench.add_subcommand(
      "all", "gemm and memory into one file, which `train` reads as run.hardware");
  auto arguments = std::make_shared<Arguments>();
  arguments->gemm.layouts.assign(kGemmLayouts.begin(), kGemmLayouts.end());
  command->add_option("--output", arguments->output, "The file that is written")
      ->capture_default_str();
  add_gemm_arguments(*command, arguments->gemm);
  add_memory_sizes(*command, arguments->memory);
  add_threads(*command, *arguments);
  command->callback([arguments] {
    require_writable(arguments->output);
    const InterruptGuard guard;
    Hardware hardware{arguments->processor(), {}, {}};
    const GemmSweep sweep = sweep_of(arguments->gemm);
    const std::vector<int64_t> sizes = sizes_of(arguments->memory, hardware.processor);
    hardware.gemms = measure(sweep, hardware.processor.threads);
    hardware.memory = measure(sizes, hardware.processor.threads, arguments->memory.seconds);
    fmt::print("{}\n\n{}\n{}\n", describe(hardware.processor), gemm_text(hardware, sweep),
               memory_text(hardware));
    write_file(arguments->output, hardware_json(hardware));
    fmt::print("{} holds all of it\n", arguments->output);
  });
}

}  // namespace tessera
