#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "hardware/accelerator_facts.h"
#include "hardware/collective_rate.h"
#include "hardware/gemm_rate.h"
#include "hardware/memory_rate.h"
#include "hardware/processor.h"

namespace tessera {

/// The limits of a machine's speed, measured or, for an accelerator, from its data sheet. Steps are
/// compared with these limits, and plans calculate with them.
struct Hardware {
  Processor processor;  ///< without a name if only an accelerator is described
  std::vector<GemmRate> gemms;
  std::vector<MemoryRate> memory;
  std::vector<CollectiveRate> collectives = {};  ///< if they were measured
  /// The accelerator that the rates were measured on, if it is not the processor.
  std::optional<AcceleratorFacts> accelerator = {};

  /// Returns the best rate of the squares of that type for which is_peak_square() is true, or of
  /// any plain square if there are none or the machine is an accelerator. If no square was
  /// measured, returns the accelerator's peak by its data sheet. Throws Error if that is not known
  /// either.
  double gemm_peak(DType dtype) const;
  /// Returns the accelerator's peak of f32 products that round to TF32, by its data sheet. Throws
  /// Error if that is not known.
  double tf32_peak() const;
  /// Returns the bandwidth of main memory in bytes per second: the best rate of any loop over the
  /// largest working set. For a processor, throws Error if the loop `update` was not measured over
  /// that working set, because other loops do not reach the memory's bandwidth. For an accelerator
  /// that was not measured, returns the bandwidth by its data sheet.
  double memory_bandwidth() const;
};

/// Returns the text of a hardware file: a JSON object with "format", "version", "processor",
/// "gemm_peak" by type (for people; it is not read), "gemm" and "memory", and "collectives" if
/// there are any. Rates are in operations and bytes per second, times of collectives in seconds.
/// Files of version 2 have an "accelerator" (see accelerator_json()), and may lack the processor.
std::string hardware_json(const Hardware& hardware);

/// Returns a JSON array of the rates, as a hardware file has it.
std::string collectives_json(const std::vector<CollectiveRate>& rates);

/// Reads a hardware file. `gemm` and `memory` may be empty. Refuses texts that a terminal would not
/// show as they are, so callers may report them without a check. Throws Error, naming the file and
/// the member, if a member is missing, unknown or not what it should be.
Hardware read_hardware(const fs::path& path);
/// Reads a hardware file from its text. `origin` is the file's name in errors.
Hardware parse_hardware(std::string_view text, const std::string& origin);

/// Throws Error if the file is about an accelerator, or was measured on a processor with another
/// name or other features than this machine's, or with another number of threads.
void require_same_processor(const Hardware& hardware, int threads, const fs::path& path);

/// Throws Error unless the file is about this accelerator: measured on one of the same name, or the
/// data sheet of one with the same architecture and number of multiprocessors.
void require_same_accelerator(const Hardware& hardware, const Accelerator& accelerator,
                              const fs::path& path);

}  // namespace tessera
