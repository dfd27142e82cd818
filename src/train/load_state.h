#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "checkpoint/checkpoint_reader.h"
#include "train/state_tensor.h"

namespace tessera {

/// Opens a checkpoint on every rank. If it is damaged, as one of them sees it, all throw
/// DamagedCheckpoint; if one throws another Error, all throw it.
CheckpointReader open_together(const fs::path& path, const StateRanks& ranks);
/// Throws Error on all ranks that names one which has opened another checkpoint than the first: a
/// folder of one name may be another one on another machine. All ranks call it.
void require_same_checkpoint(const CheckpointReader& reader, const RankControl& control);

/// Fills the tensors, which must be all of a group of the checkpoint, or all of the checkpoint
/// where no group is named. Every rank calls it. What several ranks hold is read by one of them and
/// broadcast to the others (Optimus, section 2); each rank reads the blocks alone that its pieces
/// lie in. Throws on every rank what CheckpointReader::load_all() throws on one.
void load_state(const CheckpointReader& reader, std::span<const StateTensor> tensors,
                const std::optional<std::string>& group, const StateRanks& ranks);

}  // namespace tessera
