#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/blocks/layer_blocks.h"
#include "plan/blocks/measurement_report.h"
#include "plan/blocks/repeats.h"

namespace tessera {

/// The options with which layers of a model are measured.
struct BlockBenchOptions {
  Precision precision = Precision::bf16;
  int threads = 0;  ///< 0: all usable cores
  Device device = Device::cpu;
  /// Returns the number of runs, given the measurement's name: "attention of 4096 tokens".
  std::function<Repeats(const std::string& measurement)> repeats;
};

/// Measures a mixture-of-experts layer. If it has a skewed load, also measures it with a balanced
/// load. Throws Error if it does not fit the memory.
MixtureReport bench_mixture(const MixtureBlockSizes& sizes, const BlockBenchOptions& options);

/// Measures attention for each length, the shortest first, because the process's peak memory after
/// a length is then the length's own. Throws Error if one does not fit the memory.
AttentionReport bench_attention(const AttentionBlockSizes& sizes, std::vector<int64_t> lengths,
                                const BlockBenchOptions& options);

}  // namespace tessera
