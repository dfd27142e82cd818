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

// Each function adds one subcommand of `bench`. The subcommand's callback runs it.

void add_bench_all(CLI::App& bench);
void add_bench_gemm(CLI::App& bench);
void add_bench_memory(CLI::App& bench);
void add_bench_moe(CLI::App& bench);
void add_bench_attention(CLI::App& bench);
void add_bench_step(CLI::App& bench);
void add_bench_kernels(CLI::App& bench);
void add_bench_products(CLI::App& bench);
void add_bench_collectives(CLI::App& bench);

/// The arguments that the measurements of parts of a model have in common.
struct RepeatArguments {
  int threads = 0;
  int64_t repeats = 10;
  int64_t warmup = 2;
  bool json = false;
  bool turns = false;  ///< run alternately with another program (see take_turn())

  /// Returns the repeats, with a progress line that begins with `name`. With --turns there is no
  /// progress line, and each repeat waits for its turn with another program.
  Repeats make(const std::string& name) const;
};

/// Adds --threads, --warmup, --json, --turns and the number of repeats to a command. The option for
/// the number is called `repeats_name`. `arguments` must live until the command line is parsed.
void add_repeat_arguments(CLI::App& command, RepeatArguments& arguments,
                          const std::string& repeats_name);

/// Returns the precision that the option --precision names. Throws Error if the device of --device
/// does not compute in it.
Precision precision_on(Device device, const std::string& precision);

/// Adds --svg, a picture of the measurement, to a command.
void add_picture(CLI::App& command, std::string& picture);

/// Throws Error unless the picture's name ends in .svg and the file can be written. Call it before
/// the measurement. An empty path means no picture.
void require_picture(const std::string& path);

}  // namespace tessera
