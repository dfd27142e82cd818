#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "checkpoint/checkpoint_reader.h"
#include "state/parameter_store.h"
#include "train/save_state.h"

namespace tessera {

/// Opens a checkpoint on every rank and returns its reader. Throws DamagedCheckpoint on all ranks
/// if one of them finds it damaged, and Error on all ranks if one of them throws another Error.
CheckpointReader open_together(const fs::path& path, const StateRanks& ranks);
/// Throws Error on all ranks, which names a rank that has opened another checkpoint than the first:
/// the same path may be another folder on another machine. All ranks call it.
void require_same_checkpoint(const CheckpointReader& reader, const RankControl& control);

/// Fills the tensors, which must be all tensors of a group of the checkpoint, or of the whole
/// checkpoint if no group is named. All ranks call it. A piece that several ranks hold is read by
/// one of them and broadcast to the others (Optimus, section 2). A rank reads only the blocks of a
/// file that contain its pieces. Throws on every rank what CheckpointReader::require_all() throws.
void load_state(const CheckpointReader& reader, std::span<const KeptTensor* const> tensors,
                const std::optional<std::string>& group, const StateRanks& ranks);

}  // namespace tessera
