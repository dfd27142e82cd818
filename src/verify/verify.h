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

struct VerifyOptions {
  int steps = 2;
  int64_t context = 0;  ///< positions of a sequence; 0: those of the run, or fewer (see verify())
  double most_work = kMostWork;  ///< floating-point operations on one rank; infinite: any number
  /// Is called as each part begins, with its name.
  std::function<void(const std::string& part)> progress = {};
};

/// Whether one rank that adds up in a layout's order gets the layout's bits.
struct BitComparison {
  std::optional<std::string> first_other;  ///< the first gradient, weight or loss that has others
};

/// A layout against one rank.
struct Verification {
  LayoutTrial trial;
  int steps = 0;
  int micro_batches = 0;  ///< of a step
  std::string cut;        ///< what of the run's sizes was cut and why, in words; empty: nothing
  std::vector<Deviation> exact;  ///< in f64
  /// Of the layout's first run whose bytes are not what they should be; of its last one if all are.
  GradientBytes gradient_bytes;
  /// The weight of which ranks compute with other numbers than with the rounded master.
  std::optional<std::string> stale_weight;
  /// Names what ranks hold alike and have different numbers of (see LayoutResults).
  std::optional<std::string> other_copies;
  /// Names the first step of which ranks report different results (see LayoutResults).
  std::optional<std::string> other_results;
  /// If a quantity differs: how the values compare that are computed on the way, in f64.
  std::optional<StreamComparison> values;
  /// In the configured precision: of the layout from one rank, and of one rank from f64, which is
  /// the rounding to be expected. Both have the choices of experts that one rank made in f64.
  std::vector<Deviation> rounded;
  std::vector<Deviation> expected;
  RoundingRatio rounding;             ///< the largest
  std::optional<BitComparison> bits;  ///< of layouts of which adds_up_parts() is true

  /// In f64 a rounding difference is this small, and a mistake stays as large as it was.
  static constexpr double kBound = 1e-10;
  /// A layout rounds other sums than one rank, and no more often. So it is about as far from one
  /// rank as that is from f64: in small models of all families, on 2 to 8 ranks, at most 2.2 times.
  static constexpr double kRoundingBound = 10;

  bool same() const;  ///< in f64
  bool rounds_as_expected() const { return rounding.times <= kRoundingBound; }
  bool passed() const {
    return same() && !other_copies && !other_results && !stale_weight && gradient_bytes.equal() &&
           rounds_as_expected() && !(bits && bits->first_other);
  }
};

/// Whether each rank of a layout computes a part of the batch by itself until sums are taken at the
/// end of a step. One rank then gets the same bits if it adds up the parts in the same order, and
/// rounds them as they would travel (Llama 3, section 6.2). All axes but data must be 1, and no
/// balance loss or capacity may be of the tokens of all ranks.
bool adds_up_parts(const LayoutTrial& trial);
/// Why it does not; empty if it does.
std::string why_other_bits(const LayoutTrial& trial);

/// Trains the configured model for a few steps of random tokens, on one rank and on the ranks of a
/// mesh, and compares losses, gradients, the norm, router counts and weights. Each rank takes its
/// tokens from a loader of its own, as in a run. One rank begins each step with the weights of the
/// layout: it takes the layout's gradients for its update, so that a rounding of gradients is not
/// compared again in weights and later losses. The ranks are threads of this process. The
/// micro-batch and the context are the configured ones, or the largest of trial_sizes() that takes
/// no more work than the options say and fits in memory. The configuration is resolved. Throws
/// Error if the run is for a device, if the options' context is none that the configuration could
/// have, if one rank cannot see the tokens together that the layout's balance loss and capacity see
/// together, if ranks that share sequences get other batches, and if the verification does not fit
/// in this machine's memory.
Verification verify(const RunConfig& config, const Mesh& mesh, const VerifyOptions& options);

/// The same for a trial, in whose precision runs are rounded.
Verification verify(const LayoutTrial& trial, int steps,
                    const std::function<void(const std::string& part)>& on_part = {});
/// The same with these batches, which ranks that share sequences have alike.
Verification verify(const LayoutTrial& trial, const TrialBatches& batches,
                    const std::function<void(const std::string& part)>& on_part = {});

/// The same with ranks that are processes, all of which call it. The first one runs what one rank
/// computes, too, and gets the result; the others get none. Does not name the first value that
/// differs. Throws Error that names a rank with another program or configuration.
std::optional<Verification> verify_as_process(const RunConfig& config, const Mesh& mesh,
                                              const VerifyOptions& options, Processes& processes);

/// What a verification found, in words, and as JSON, with the name of the phase if there is one.
std::string verification_text(const Verification& found);
std::string verification_json(const Verification& found, const std::string& phase = "");

}  // namespace tessera
