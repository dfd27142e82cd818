#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "plan/blocks/measurement_report.h"
#include "tensor/dtype.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

// Each function adds one subcommand of `bench`, with a callback that does its work.

void add_bench_all(CLI::App& bench);
void add_bench_gemm(CLI::App& bench);
void add_bench_memory(CLI::App& bench);
void add_bench_moe(CLI::App& bench);
void add_bench_attention(CLI::App& bench);
void add_bench_step(CLI::App& bench);
void add_bench_kernels(CLI::App& bench);
void add_bench_products(CLI::App& bench);
void add_bench_collectives(CLI::App& bench);
void add_bench_schedule(CLI::App& bench);

/// The arguments of the commands that repeat a measurement.
struct RepeatArguments {
  int threads = 0;
  int64_t repeats = 10;
  int64_t warmup = 2;
  bool json = false;
  bool turns = false;  ///< true to take turns with another program (see take_turn())

  /// Returns the repeats, with a progress line that begins with `name`. With --turns there is no
  /// progress line, and each repeat waits for its turn.
  Repeats make_repeats(const std::string& name) const;
};

/// Adds --threads, --warmup, --json, --turns and the option `repeats_name`, the number of repeats,
/// to a command. `arguments` must live until the command line is parsed.
void add_repeat_arguments(CLI::App& command, RepeatArguments& arguments,
                          const std::string& repeats_name);

/// Returns the precision that the option --precision names. Throws Error if `device`, the choice of
/// --device, does not compute in that precision.
Precision precision_on(Device device, const std::string& precision);

/// Adds --svg, a picture of the measurement, to a command.
void add_picture(CLI::App& command, std::string& picture);

/// Throws Error unless the picture's name ends in .svg and the file can be written. Call it before
/// the measurement. An empty path means no picture.
void require_picture(const std::string& path);

}  // namespace tessera
