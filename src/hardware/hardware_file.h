#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "hardware/gemm_rate.h"
#include "hardware/memory_rate.h"
#include "hardware/processor.h"

namespace tessera {

/// The measured limits of a machine. Steps are compared with them, and plans calculate with them.
struct Hardware {
  Processor processor;
  std::vector<GemmRate> gemms;
  std::vector<MemoryRate> memory;

  /// Returns the best rate of the squares of that type that peaks are read from (see
  /// is_peak_square()), or of any plain square if there are none. Throws Error if no plain square
  /// of that type was measured.
  double gemm_peak(DType dtype) const;
  /// Returns the bandwidth of main memory in bytes per second: the best rate of any loop over the
  /// largest working set. Throws Error if `update` was not measured over that working set, as by
  /// older versions. The other loops alone fall short of what the memory moves.
  double memory_bandwidth() const;
};

/// Returns the text of a hardware file: a JSON object with "format", "version", "processor",
/// "gemm_peak" by type (which follows from the products), "gemm" and "memory". Rates are in
/// operations and bytes per second.
std::string hardware_json(const Hardware& hardware);

/// Reads a hardware file. `gemm` and `memory` may be empty. Refuses texts that a terminal would not
/// show as they are, so callers may report them without a check. Throws Error, naming the file and
/// the member, if a member is missing or not what it should be.
Hardware read_hardware(const fs::path& path);
/// Does the same with the file's text. `origin` is the file's name in errors.
Hardware parse_hardware(std::string_view text, const std::string& origin);

/// Throws Error if the file was measured on a processor with another name or other features than
/// this machine's, or with another number of threads.
void require_same_processor(const Hardware& hardware, int threads, const fs::path& path);

}  // namespace tessera
