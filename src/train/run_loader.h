#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "data/loader.h"
#include "train/run_data.h"

namespace tessera {

/// The loader of a rank, through all phases of a run. Its state has the positions of all sources of
/// the run, including those that the phase does not draw from.
class RunLoader {
 public:
  /// Keeps references to `data` and `phases`. Throws Error as Loader does, for any phase.
  RunLoader(const RunData& data, std::span<const RunPhase> phases, const MeshRank& mesh_rank);

  /// Moves to a position of a phase.
  void seek(size_t phase, const LoaderState& state);
  /// Moves from the end of the phase before to a phase's RunData::entry_position().
  void enter(size_t phase);
  size_t phase() const { return phase_; }

  /// Returns the rank's micro-batches of the next step. Throws Error as Loader::next() does.
  std::vector<Batch> next_step();
  /// Returns the positions of all sources at the next step.
  LoaderState state() const;
  /// Returns the sources that the current phase draws from.
  const TrainingData& drawn_sources() const { return drawn_sources_; }
  /// Returns the number of sequences in a micro-batch of all ranks.
  int64_t rows() const;

 private:
  LoaderOptions options(size_t phase) const;

  const RunData& data_;
  std::span<const RunPhase> phases_;
  MeshRank mesh_rank_;
  size_t phase_ = 0;
  LoaderState all_;  // the positions of all sources at the last seek()
  TrainingData drawn_sources_;
  std::optional<Loader> loader_;
};

}  // namespace tessera
