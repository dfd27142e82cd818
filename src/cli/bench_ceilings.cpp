#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench_commands.h"
#include "hardware/gemm_sweep.h"
#include "hardware/hardware_report.h"
#include "model/model.h"
#include "tensor/memory_pool.h"

namespace tessera {
namespace {

/// What `gemm`, `memory` and `all` have in common.
struct CeilingArguments {
  int threads = 0;
  bool json = false;
  std::string picture;

  Processor processor() const { return this_processor(threads_or_all(threads)); }
};

struct GemmArguments {
  GemmSweep sweep;
  std::vector<std::string> precisions;
  std::vector<std::string> layouts{std::string(kGemmLayouts.front())};
};

struct MemoryArguments {
  std::vector<std::string> sizes;
  double seconds = 0.1;
};

void add_threads(CLI::App& command, CeilingArguments& arguments) {
  command.add_option("--threads", arguments.threads, "0: all cores")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void add_ceiling_arguments(CLI::App& command, CeilingArguments& arguments) {
  add_threads(command, arguments);
  command.add_flag("--json", arguments.json, "One JSON object on standard output");
  command.add_option("--svg", arguments.picture, "A picture as well, to this file");
}

void require_svg(const std::string& path) {
  if (path.empty() || fs::path(path).extension() == ".svg") return;
  throw Error("--svg is {}; pictures are SVG, name a file that ends in .svg", path);
}

/// The types to measure: those asked for, or all that the processor has.
std::vector<DType> dtypes_of(const std::vector<std::string>& precisions) {
  std::vector<DType> dtypes;
  for (const std::string& precision : precisions) dtypes.push_back(compute_dtype(precision));
  if (!dtypes.empty()) return dtypes;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    if (has_gemm(dtype)) {
      dtypes.push_back(dtype);
    } else {
      fmt::print(stderr, "this processor has no {} matrix product; it is left out\n",
                 dtype_name(dtype));
    }
  }
  return dtypes;
}

std::vector<GemmRate> measure(const GemmArguments& arguments, int threads) {
  GemmSweep sweep = arguments.sweep;
  sweep.dtypes = dtypes_of(arguments.precisions);
  sweep.layouts.clear();
  for (const std::string& layout : arguments.layouts) {
    sweep.layouts.push_back(gemm_layout_from_name(layout));
  }
  Progress progress;
  const Stopwatch watch;
  return measure_gemm_sweep(sweep, threads, [&](const std::string& what, size_t done, size_t all) {
    const double fraction = static_cast<double>(done) / static_cast<double>(all);
    progress.show(Progress::bar(fraction, watch.seconds(), what), done == all);
  });
}

std::vector<MemoryRate> measure(const MemoryArguments& arguments, const Processor& processor) {
  std::vector<int64_t> sizes;
  for (const std::string& size : arguments.sizes) sizes.push_back(parse_bytes(size));
  if (sizes.empty()) sizes = memory_sweep_sizes(processor.last_level_cache, processor.threads);
  for (const int64_t size : sizes) {
    if (size < 1 || size > physical_memory() / 2) {
      throw Error("a working set of {}; give sizes from 1 byte to half of this machine's {}",
                  format_bytes(size), format_bytes(physical_memory()));
    }
  }
  Progress progress;
  std::vector<MemoryRate> rates;
  for (const int64_t size : sizes) {
    for (size_t kernel = 0; kernel < kMemoryKernels.size(); ++kernel) {
      if (InterruptGuard::requested()) throw Error("interrupted: nothing was reported or written");
      progress.show(fmt::format("{} of {}", kMemoryKernels[kernel], format_bytes(size)));
      rates.push_back(measure_memory(static_cast<MemoryKernel>(kernel), size, processor.threads,
                                     arguments.seconds));
    }
  }
  progress.clear();
  return rates;
}

void report(const Hardware& hardware, const CeilingArguments& arguments, const std::string& text,
            std::string (*picture)(const Hardware&)) {
  if (!arguments.picture.empty()) write_file(arguments.picture, picture(hardware));
  if (arguments.json) {
    fmt::print("{}", hardware_json(hardware));
  } else {
    fmt::print("{}\n{}", describe(hardware.processor), "\n" + text);
  }
}

void add_sizes(CLI::App& command, const std::string& name, std::vector<int64_t>& sizes,
               const std::string& help) {
  command.add_option(name, sizes, help)
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
}

}  // namespace

void add_bench_gemm(CLI::App& bench) {
  struct Arguments : CeilingArguments, GemmArguments {};
  CLI::App* command = bench.add_subcommand(
      "gemm", "Matrix products C[M,N] += A[M,K] B[K,N] of every size given, and large square ones");
  auto arguments = std::make_shared<Arguments>();
  add_sizes(*command, "--m", arguments->sweep.m, "Rows of A and C");
  add_sizes(*command, "--n", arguments->sweep.n, "Columns of B and C");
  add_sizes(*command, "--k", arguments->sweep.k, "Columns of A, rows of B");
  command->add_option("--precision", arguments->precisions, "Left out: bf16 and fp32")
      ->delimiter(',')
      ->check(CLI::IsMember({"bf16", "fp32", "fp64"}));
  command
      ->add_option("--layout", arguments->layouts,
                   "The product of a linear layer whose operands' layout is taken")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(kGemmLayouts.begin(), kGemmLayouts.end())))
      ->capture_default_str();
  command
      ->add_option("--seconds", arguments->sweep.seconds,
                   "About how long a precision is measured; each shape three times at least")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  add_ceiling_arguments(*command, *arguments);
  command->callback([arguments] {
    require_svg(arguments->picture);
    const InterruptGuard guard;
    Hardware hardware{arguments->processor(), {}, {}};
    hardware.gemms =
        measure(static_cast<const GemmArguments&>(*arguments), hardware.processor.threads);
    report(hardware, *arguments, gemm_text(hardware), gemm_picture);
  });
}

void add_bench_memory(CLI::App& bench) {
  struct Arguments : CeilingArguments, MemoryArguments {};
  CLI::App* command = bench.add_subcommand(
      "memory",
      "Bandwidth of copying, scaling and adding arrays, from first-level cache to memory");
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("--sizes", arguments->sizes,
                   "Bytes of all arrays of all threads: 64KiB,16MiB,...; left out: 16 KiB a thread "
                   "to four times the last-level cache")
      ->delimiter(',');
  command
      ->add_option("--seconds", arguments->seconds,
                   "About how long each loop of a size is measured")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  add_ceiling_arguments(*command, *arguments);
  command->callback([arguments] {
    require_svg(arguments->picture);
    const InterruptGuard guard;
    Hardware hardware{arguments->processor(), {}, {}};
    hardware.memory = measure(static_cast<const MemoryArguments&>(*arguments), hardware.processor);
    report(hardware, *arguments, memory_text(hardware), memory_picture);
  });
}

void add_bench_all(CLI::App& bench) {
  struct Arguments : CeilingArguments {
    std::string output = "hardware.json";
    double seconds = 15;
  };
  CLI::App* command = bench.add_subcommand(
      "all", "gemm and memory into one file, which `train` reads as run.hardware");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("--output", arguments->output, "The file that is written")
      ->capture_default_str();
  command
      ->add_option("--seconds", arguments->seconds,
                   "About how long the matrix products of a precision are measured")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  add_threads(*command, *arguments);
  command->callback([arguments] {
    const InterruptGuard guard;
    Hardware hardware{arguments->processor(), {}, {}};
    GemmArguments gemm;
    gemm.sweep.seconds = arguments->seconds;
    gemm.layouts.assign(kGemmLayouts.begin(), kGemmLayouts.end());
    hardware.gemms = measure(gemm, hardware.processor.threads);
    hardware.memory = measure(MemoryArguments{}, hardware.processor);
    write_file(arguments->output, hardware_json(hardware));
    fmt::print("{}\n\n{}\n{}\n{} holds all of it\n", describe(hardware.processor),
               gemm_text(hardware), memory_text(hardware), arguments->output);
  });
}

}  // namespace tessera
