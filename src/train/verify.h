#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "train/layout_run.h"

namespace tessera {

struct VerifyOptions {
  int steps = 2;
  int64_t context = 0;  ///< positions of a sequence; 0: those of short_context()
};

/// How far a quantity of a layout is from that of one rank.
struct Deviation {
  std::string quantity;  ///< "loss", "gradients", "router counts"
  /// The largest difference over the largest number of the same tensor.
  double relative = 0;
  std::string where;  ///< the tensor or the step that has it
};

/// A layout against one rank.
struct Verification {
  LayoutTrial trial;
  int steps = 0;
  int micro_batches = 0;         ///< of a step
  std::vector<Deviation> exact;  ///< in f64
  /// If a quantity differs: where the first value does that both compute.
  std::optional<StreamDifference> first;
  /// In the configured precision: of the layout from one rank, and of one rank from f64, which is
  /// the rounding to be expected. Choices of experts that flip are among both.
  std::vector<Deviation> rounded;
  std::vector<Deviation> expected;

  /// In f64 a rounding difference is this small, and a mistake stays as large as it was.
  static constexpr double kBound = 1e-10;
  bool same() const;
};

/// The positions that a verification uses of each sequence unless it is told another number: at
/// most 64, or the fewest that divide over the mesh.
int64_t short_context(const RunConfig& config);

/// Trains the configured model for a few steps of random tokens, on one rank and on the ranks of a
/// mesh, and compares losses, gradients, the norm, router counts and weights. The ranks are threads
/// of this process. The configuration is resolved.
Verification verify(const RunConfig& config, const Mesh& mesh, const VerifyOptions& options);

/// How a layout's results differ from one rank's.
std::vector<Deviation> deviations(const LayoutResults& one, const LayoutResults& layout);

/// What a verification found, in words, and as JSON.
std::string verification_text(const Verification& found);
std::string verification_json(const Verification& found);

}  // namespace tessera
