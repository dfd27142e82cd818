#pragma once

#include <span>
#include <utility>
#include <vector>

#include "config/phases.h"
#include "data/loader.h"
#include "data/sources/open_data.h"

namespace tessera {

/// The data of all phases of a run.
class RunData {
 public:
  /// Of a run without phases.
  RunData(TrainingData data) : phases_{std::move(data)} {}  // NOLINT(google-explicit-constructor)
  /// Of phases that are open already, each with all sources of the run, as at() returns them.
  explicit RunData(std::vector<TrainingData> phases) : phases_(std::move(phases)) {}
  /// Opens it for a resolved configuration with these phases. Throws Error as open_data() does, and
  /// if a phase has no data to train on or, in a run that evaluates, none that is held out.
  RunData(const RunConfig& config, std::span<const RunPhase> phases);

  const DataTokenizer& tokenizer() const { return phases_.front().tokenizer; }
  /// All sources of the run as they are in a phase. A source that the phase does not draw from has
  /// the weight 0, and the context of the last phase up to this one that did, or of the first that
  /// will. Positions count in that context.
  const TrainingData& at(size_t phase) const { return phases_[phase]; }
  /// The sources that a phase draws from.
  TrainingData drawn(size_t phase) const;
  /// Their positions among those of all sources, and all positions with these in them.
  LoaderState drawn_state(size_t phase, const LoaderState& all) const;
  LoaderState with_drawn(size_t phase, LoaderState all, const LoaderState& drawn) const;

  /// The position from which a phase goes on where the phase before it ended. A source goes on
  /// where it was. With another context its place in the epoch, counted in tokens, is rounded up to
  /// whole instances. The shares of a mix are counted anew unless the mix stays.
  LoaderState entered(size_t phase, LoaderState after_last) const;

  size_t phases() const { return phases_.size(); }

 private:
  std::vector<TrainingData> phases_;
};

}  // namespace tessera
