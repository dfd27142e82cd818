#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/save.h"
#include "comm/rank_control.h"
#include "program/runtime.h"
#include "state/parameter_store.h"

namespace tessera {

/// The means by which a rank saves and loads the run's state together with the others.
struct StateRanks {
  Runtime& runtime;
  const RankControl& control;

  Mesh mesh() const { return control.several() ? runtime.groups().mesh() : Mesh(); }
};

/// The contents of one checkpoint.
struct StateToSave {
  fs::path directory;  ///< the folder of all checkpoints
  CheckpointState state;
  std::vector<const KeptTensor*> tensors;  ///< the same list on all ranks; each has its own pieces
  const StateShard& shard;                 ///< this rank's
  std::span<const CarriedFile> carried;
};

/// Saves a checkpoint. All ranks call it, and each writes its share of the tensors (save_shares())
/// from the pieces in its memory. No rank needs more memory than the buffer of a file's writer.
/// Throws Error on every rank if one of them cannot write, and leaves no partial checkpoint.
void save_state(const StateToSave& save, const SaveOptions& options, const StateRanks& ranks);

/// Pieces of fewer bytes are never cut to make the shares more equal.
inline constexpr int64_t kLeastCut = int64_t{1} << 20;

/// Returns the regions that this rank saves, by tensor. Each element is saved by one of the ranks
/// that hold it. Elements that several ranks hold are divided among them so that all ranks write
/// nearly the same number of bytes, in few regions (Optimus, section 2: DP-scattered checkpoints).
/// All ranks work out the same division without communication. `shard` is this rank's.
std::vector<std::vector<Region>> save_shares(std::span<const KeptTensor* const> tensors,
                                             const StateShard& shard,
                                             int64_t least_cut = kLeastCut);

/// Throws Error on every rank if one of them cannot write a checkpoint into a folder, so that a run
/// fails before its first step. Leaves nothing there. All ranks call it.
void require_savable(const fs::path& directory, const RankControl& control);

}  // namespace tessera
