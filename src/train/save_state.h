#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/save.h"
#include "train/state_tensor.h"

namespace tessera {

/// What becomes one checkpoint.
struct StateToSave {
  fs::path directory;  ///< of the checkpoints
  CheckpointState state;
  std::vector<StateTensor> tensors;  ///< the same on all ranks but for the pieces
  std::span<const CarriedFile> carried;
};

/// Saves a checkpoint. Every rank calls it and writes its share of the tensors, in pieces that lie
/// in its memory (see save_shares()); the first rank begins and commits. No rank needs memory for
/// more than what a file's writer buffers. Throws Error on every rank if one of them cannot write;
/// nothing partial is left then.
void save_state(const StateToSave& save, const SaveOptions& options, const StateRanks& ranks);

/// Tries whether every rank can write a checkpoint into a folder, and leaves nothing there. Every
/// rank calls it. Throws Error on every rank if one of them cannot, as save_state() would after
/// many steps.
void require_savable(const fs::path& directory, const RankControl& control);

}  // namespace tessera
