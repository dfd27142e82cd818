#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

/// The results of a step. The losses are summed over its micro-batches; the means are over the
/// whole global batch.
struct StepResults {
  double cross_entropy = 0;  ///< mean over target tokens
  double balance = 0;        ///< mean over tokens
  double router_z = 0;       ///< mean over tokens
  int64_t targets = 0;
  int64_t tokens = 0;
  /// The tokens of the fullest expert over the mean of a layer's experts, the largest of any layer.
  /// 0 without experts.
  double expert_load = 0;
  /// The part of the tokens, over all layers, that a router sent to no expert; none without a skip
  /// class.
  std::optional<double> skipped = {};
  double gradient_norm = 0;  ///< Euclidean, of all main gradients, before they were clipped
  /// Whether the weights changed: every loss and the gradients' norm were finite.
  bool updated = false;
  /// Of Muon's updates; none without Muon (see MuonMeasures).
  std::optional<double> update_rms = {};
  std::optional<double> orthogonality_error = {};

  /// Returns whether the bits are the same, but for the measures of Muon's updates: ranks add these
  /// up in an order that depends on who has which matrices. A NaN equals itself.
  bool operator==(const StepResults& other) const;
};

/// Returns the results as bits, as many for all results. Another rank reads them.
std::vector<uint64_t> bits_of(const StepResults& results);
/// Returns the results of these bits. Throws InternalError unless they are as many as bits_of()
/// gives.
StepResults step_results_of(std::span<const uint64_t> bits);

}  // namespace tessera
