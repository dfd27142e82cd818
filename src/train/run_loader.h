#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "data/loader.h"
#include "train/run_data.h"

namespace tessera {

/// Hands a rank the batches of its steps, phase after phase. Its state is of all sources of the
/// run, whichever the phase draws from.
class RunLoader {
 public:
  /// Refers to both. Throws Error as Loader does, for any phase.
  RunLoader(const RunData& data, std::span<const RunPhase> phases, const MeshRank& place);

  /// Moves to a position of a phase.
  void seek(size_t phase, const LoaderState& state);
  /// Goes on from the last step of the phase before to the next phase (see RunData::entered()).
  void enter(size_t phase);
  size_t phase() const { return phase_; }

  /// Returns the rank's micro-batches of the next step. Throws Error as Loader::next() does.
  std::vector<Batch> next_step();
  /// The position of the next step, and the data that it is in.
  LoaderState state() const;
  const TrainingData& drawn() const { return drawn_; }
  /// The sequences of a micro-batch of all ranks.
  int64_t rows() const;

 private:
  LoaderOptions options(size_t phase) const;

  const RunData& data_;
  std::span<const RunPhase> phases_;
  MeshRank place_;
  size_t phase_ = 0;
  LoaderState all_;
  TrainingData drawn_;
  std::optional<Loader> loader_;
};

}  // namespace tessera
