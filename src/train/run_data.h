#pragma once

#include <span>
#include <utility>
#include <vector>

#include "config/phases.h"
#include "data/loader.h"
#include "data/sources/open_data.h"

namespace tessera {

/// The training and held-out data of a run, phase by phase. Every phase lists all sources of the
/// run in the same order, and draws from those whose weight is not 0: the *drawn* sources.
///
/// A LoaderState holds a position for each source. Two kinds are used. Checkpoints and phases have
/// the positions of all sources. The Loader of a phase, which sees the drawn sources alone, has
/// theirs, in the same order. drawn_positions() and with_drawn_positions() convert between them.
class RunData {
 public:
  /// Takes the data of a run without phases.
  RunData(TrainingData data) : phases_{std::move(data)} {}  // NOLINT(google-explicit-constructor)
  /// Takes the open data of each phase, which lists all sources (see all_sources()).
  explicit RunData(std::vector<TrainingData> phases) : phases_(std::move(phases)) {}
  /// Opens the data of a resolved configuration with these phases. Throws Error as open_data()
  /// does. Throws Error, too, if the run evaluates and a phase has no held-out data.
  RunData(const RunConfig& config, std::span<const RunPhase> phases);

  /// Returns the tokenizer, which is the same in all phases.
  const DataTokenizer& tokenizer() const { return phases_.front().tokenizer; }
  /// Returns all sources of the run with their weights and contexts in a phase. A source that the
  /// phase does not draw from has the weight 0. Its position is counted in the context of the last
  /// earlier phase that draws from it or, if there is none, of the first later one.
  const TrainingData& all_sources(size_t phase) const { return phases_[phase]; }
  /// Returns the sources that a phase draws from, for its Loader.
  TrainingData drawn_sources(size_t phase) const;
  /// Returns the positions of the drawn sources, selected from those of all sources.
  LoaderState drawn_positions(size_t phase, const LoaderState& all) const;
  /// Returns the positions of all sources, with those of the drawn sources set to `drawn`.
  LoaderState with_drawn_positions(size_t phase, LoaderState all, const LoaderState& drawn) const;

  /// Returns the positions of all sources at which a phase begins, given those at the end of the
  /// phase before. Each source continues where it was. If its context changes, its position in the
  /// epoch is rounded up to whole instances of the new context. The counts of drawn instances, by
  /// which the mix keeps its shares, start at 0 again unless the shares stay the same.
  LoaderState entry_position(size_t phase, LoaderState end_of_previous) const;

  size_t phases() const { return phases_.size(); }

 private:
  std::vector<TrainingData> phases_;
};

}  // namespace tessera
