#pragma once

#include <cstdint>
#include <string>

#include "plan/measurement_report.h"
#include "tensor/dtype.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

// Each adds one subcommand of `bench`, whose callback runs it.

void add_bench_all(CLI::App& bench);
void add_bench_gemm(CLI::App& bench);
void add_bench_memory(CLI::App& bench);
void add_bench_moe(CLI::App& bench);
void add_bench_attention(CLI::App& bench);
void add_bench_step(CLI::App& bench);

/// What the measurements of parts of a model have in common on a command line.
struct RepeatArguments {
  int threads = 0;
  int64_t repeats = 10;
  int64_t warmup = 2;
  bool json = false;
  bool turns = false;

  /// The repeats: with a progress line for `what`, or in turns with another program.
  Repeats make(const std::string& what) const;
};

/// Adds --threads, --warmup, --json, --turns and the number of repeats, called `repeats_name`, to a
/// command. `arguments` must live until the command line is parsed.
void add_repeat_arguments(CLI::App& command, RepeatArguments& arguments,
                          const std::string& repeats_name);

/// Adds --svg, a picture of the measurement, to a command.
void add_picture(CLI::App& command, std::string& picture);

/// Throws Error, before anything is measured for it, unless the picture's name ends in .svg and it
/// can be written. An empty path asks for no picture.
void require_picture(const std::string& path);

}  // namespace tessera
