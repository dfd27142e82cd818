#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "hardware/gemm_rate.h"
#include "hardware/memory_rate.h"
#include "hardware/processor.h"

namespace tessera {

/// What was measured of a machine: the ceilings that steps are held against and plans reckon with.
struct Hardware {
  Processor processor;
  std::vector<GemmRate> gemms;
  std::vector<MemoryRate> memory;

  /// The best rate of a square of that type of which peaks are read (see is_peak_square(); where
  /// there is none, of any plain square). Throws Error when none was measured.
  double gemm_peak(DType dtype) const;
  /// Main memory's, in bytes a second: the best rate of any loop over the largest working set.
  /// Throws Error when `update` was not measured over it (by older versions): the other loops fall
  /// short of what the memory moves.
  double memory_bandwidth() const;
};

/// The file's text: a JSON object with "format", "version", "processor", "gemm_peak" by type (which
/// follows from the products), "gemm" and "memory". Rates are in operations and bytes a second.
std::string hardware_json(const Hardware& hardware);

/// Reads such a file; `gemm` and `memory` may be empty. Its texts are refused where a terminal
/// would not show them as they are, so that whoever reports them need not look. Throws Error naming
/// the file and the member that is missing or not what it should be.
Hardware read_hardware(const fs::path& path);
/// The same from the file's text; `origin` is what errors call it.
Hardware parse_hardware(std::string_view text, const std::string& origin);

/// Throws Error when the file was measured on a processor of another name or with other features
/// than this machine's, or with another number of threads.
void require_same_processor(const Hardware& hardware, int threads, const fs::path& path);

}  // namespace tessera
