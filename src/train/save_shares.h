#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/region.h"
#include "state/kept_tensor.h"

namespace tessera {

/// Pieces of fewer bytes are never cut to make the shares more equal.
inline constexpr int64_t kLeastCut = int64_t{1} << 20;

/// Returns the regions of each tensor that this rank saves. Each element is saved by one of the
/// ranks that hold it. Elements that several ranks hold are divided among them so that all ranks
/// write nearly the same number of bytes, in few regions (Optimus, section 2: DP-scattered
/// checkpoints). All ranks compute the same shares without communication. `shard` is this rank's.
std::vector<std::vector<Region>> save_shares(std::span<const KeptTensor* const> tensors,
                                             const StateShard& shard,
                                             int64_t least_cut = kLeastCut);

}  // namespace tessera
