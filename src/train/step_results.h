#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

/// The results of a step, the same on all ranks. They are over the whole global batch.
struct StepResults {
  double cross_entropy = 0;  ///< mean over target tokens
  double balance = 0;        ///< mean over tokens
  double router_z = 0;       ///< mean over tokens
  int64_t targets = 0;
  int64_t tokens = 0;
  /// The number of tokens of the fullest expert, divided by the mean over a layer's experts: the
  /// largest of all layers. 0 without experts.
  double expert_load = 0;
  /// The fraction of all layers' tokens that went to no expert; none without a skip class.
  std::optional<double> skipped = {};
  double gradient_norm = 0;  ///< Euclidean, of all main gradients, before clipping
  /// True if the weights changed: every loss and the gradient norm were finite.
  bool updated = false;
  /// Measures of Muon's updates; none without Muon (see MuonMeasures).
  std::optional<double> update_rms = {};
  std::optional<double> orthogonality_error = {};

  /// Returns whether the results have the same bits; a NaN equals itself. The measures of Muon's
  /// updates are left out, because the order of their sums depends on the layout.
  bool operator==(const StepResults& other) const;
};

/// Returns the results as bits, equally many for all results, to be sent to another rank.
std::vector<uint64_t> bits_of(const StepResults& results);
/// Returns the results from their bits. Throws InternalError if there are too many or too few.
StepResults step_results_of(std::span<const uint64_t> bits);

}  // namespace tessera
