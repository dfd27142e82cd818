#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/save.h"
#include "state/kept_tensor.h"
#include "train/state_ranks.h"

namespace tessera {

/// The contents of one checkpoint.
struct StateToSave {
  fs::path directory;  ///< the folder of all checkpoints
  CheckpointState state;
  std::vector<const KeptTensor*> tensors;  ///< the same list on all ranks; each has its own pieces
  const StateShard& shard;                 ///< this rank's
  std::span<const CarriedFile> carried;
};

/// Saves a checkpoint. All ranks call it, and each writes its share of the tensors (see
/// save_shares()) from the pieces in its memory. The first rank begins and commits the checkpoint.
/// No rank needs more memory than the buffer of a file's writer. Throws Error on every rank if one
/// of them cannot write, and leaves no partial checkpoint.
void save_state(const StateToSave& save, const SaveOptions& options, const StateRanks& ranks);

/// Throws Error on every rank if one of them cannot write a checkpoint into a folder, so that a run
/// fails before its first step. Leaves nothing there. All ranks call it.
void require_savable(const fs::path& directory, const RankControl& control);

}  // namespace tessera
