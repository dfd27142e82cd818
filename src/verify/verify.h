#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "verify/deviation.h"
#include "verify/layout_run.h"
#include "verify/verify_size.h"

namespace tessera {

class Processes;

/// Options of verify().
struct VerifyOptions {
  int steps = 2;
  int64_t context = 0;             ///< positions of a sequence; 0: those of the run, or fewer
  double work_limit = kWorkLimit;  ///< FLOPs on one rank; may be infinite
  /// Called with the name of each part of the verification before it begins.
  std::function<void(const std::string& part)> progress = {};
};

/// The result of comparing a layout with one rank.
struct Verification {
  LayoutTrial trial;
  int steps = 0;
  int micro_batches = 0;  ///< of a step
  std::string cut;        ///< the sizes of the run that were cut and why, in words; may be empty
  std::vector<Deviation> exact;  ///< in f64
  /// Of the layout's first run with other bytes than expected, or else of its last run.
  GradientBytes gradient_bytes;
  std::optional<std::string> stale_weight;     ///< see first_stale_weight()
  std::optional<std::string> unequal_copies;   ///< see LayoutResults
  std::optional<std::string> unequal_results;  ///< see LayoutResults
  /// The comparison of the values inside the model in f64, if a quantity differs.
  std::optional<StreamComparison> values;
  /// The deviations in the configured precision: of the layout from one rank, and of one rank from
  /// f64, which is the expected rounding. Both take the experts that one rank chose in f64.
  std::vector<Deviation> rounded;
  std::vector<Deviation> expected;
  RoundingRatio rounding;  ///< the largest ratio of `rounded` to `expected`
  /// What differs first in bits from one rank that adds up in the layout's order; empty if nothing
  /// does. None if why_bits_not_compared() says why.
  std::optional<std::string> bits;

  /// The largest relative difference in f64 that counts as rounding. A mistake is larger.
  static constexpr double kBound = 1e-10;
  /// The largest ratio that counts as rounding. A layout rounds other sums than one rank, but no
  /// more often, so it is about as far from one rank as that is from f64: at most 2.2 times in
  /// small models of all families, on 2 to 8 ranks.
  static constexpr double kRoundingBound = 10;

  /// Returns whether the layout computes the same model as one rank: in f64 no quantity deviates by
  /// more than kBound, and router counts not at all.
  bool same() const;
  /// Returns whether the layout's rounding is no larger than expected.
  bool rounds_as_expected() const { return rounding.times <= kRoundingBound; }
  /// Returns whether nothing wrong was found.
  bool passed() const {
    return same() && !unequal_copies && !unequal_results && !stale_weight &&
           gradient_bytes.equal() && rounds_as_expected() && (!bits || bits->empty());
  }
};

/// Returns why one rank cannot get the same bits as a layout (Llama 3, section 6.2), in words;
/// empty if it can. It can if each rank of the layout computes a part of the batch by itself until
/// sums are taken at the end of a step (see SumsOfParts): all axes but data are 1, and no balance
/// loss, balancing bias or capacity depends on the tokens of all ranks.
std::string why_bits_not_compared(const LayoutTrial& trial);

/// Trains the configured model for a few steps of random tokens, on one rank and on the ranks of a
/// mesh, which are threads of this process, and compares losses, gradients, the gradient norm,
/// router counts and weights. Each rank takes its tokens from a loader of its own, as in a run. The
/// single rank takes the layout's gradients for its update. So it begins each step with the
/// layout's weights, and a rounding of gradients does not show again in weights and later losses.
/// The micro-batch and the context are the largest of trial_sizes() that fit the options' work and
/// the memory. The configuration must be resolved.
///
/// Throws Error in these cases:
/// - the run is for a device, or the configuration could not have the options' context;
/// - the layout's balance loss or capacity sees tokens together that one rank cannot;
/// - ranks that share sequences get different batches;
/// - the verification does not fit in this machine's memory.
Verification verify(const RunConfig& config, const Mesh& mesh, const VerifyOptions& options);

/// Verifies a trial with batches from loaders. The rounded runs have the precision `trial.compute`.
Verification verify(const LayoutTrial& trial, int steps,
                    const std::function<void(const std::string& part)>& on_part = {});
/// Verifies a trial with these batches, which must be equal on ranks that share sequences. Does not
/// check that it fits in memory, nor which tokens the ranks see together.
Verification verify(const LayoutTrial& trial, const TrialBatches& batches,
                    const std::function<void(const std::string& part)>& on_part = {});

/// Verifies as verify() does, with ranks that are processes, but does not find the first value that
/// differs. All ranks call it. The first rank also runs the trials of a single rank, and it alone
/// gets the result. The error may also name a rank with another program or configuration.
std::optional<Verification> verify_as_process(const RunConfig& config, const Mesh& mesh,
                                              const VerifyOptions& options, Processes& processes);

/// Returns the result of a verification in words.
std::string verification_text(const Verification& result);
/// Returns the result of a verification as JSON, with the name of the phase if there is one.
std::string verification_json(const Verification& result, const std::string& phase = "");

}  // namespace tessera
