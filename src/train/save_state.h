#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_state.h"
#include "model/parameter.h"
#include "train/training_state.h"

namespace tessera {

/// A tensor of a checkpoint, of which this rank holds a piece that lies as its parameter does.
struct StateTensor {
  std::string group, name;
  Tensor tensor;
  const ParameterSpec* spec;
};

/// What becomes one checkpoint.
struct StateToSave {
  fs::path directory;  ///< of the checkpoints
  CheckpointState state;
  std::vector<StateTensor> tensors;  ///< the same on all ranks but for the pieces
  std::span<const CarriedFile> carried;
};

/// Saves a checkpoint of whole tensors. Every rank calls it; the first one writes, and the others
/// give it the pieces that it asks for. `threads` write files at once if nothing lies in pieces,
/// otherwise one does, and each rank has one whole tensor at a time beside its own. Throws Error as
/// save_checkpoint() does, on the first rank alone.
void save_state(const StateToSave& save, int threads, const StateRanks& ranks);

/// Puts a tensor together of which the ranks hold pieces. All ranks call it and get the whole,
/// which is the tensor itself where it does not lie in pieces.
Tensor gather_whole(const Tensor& piece, const Distribution& distribution, RankGroups& groups);

}  // namespace tessera
