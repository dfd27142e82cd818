#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/region.h"
#include "comm/distribution.h"
#include "comm/mesh.h"
#include "comm/tensor_piece.h"

namespace tessera {

/// A tensor of a checkpoint, of which the ranks of a mesh hold pieces.
struct TensorOnRanks {
  Distribution distribution;  ///< ranks at one place on the axes that split it hold the same
  int64_t element_bytes;
  std::function<std::vector<TensorPiece>(int rank)> pieces;  ///< those that a rank holds
};

/// Pieces of at least so many bytes are cut if that makes the shares more equal.
inline constexpr int64_t kLeastCut = int64_t{1} << 20;

/// Which regions of each tensor a rank saves. Each element is saved by one rank that holds it, and
/// what several ranks hold is shared out so that all ranks of them write nearly the same number of
/// bytes, in few regions (Optimus, section 2: DP-scattered checkpoints). All ranks come to the same
/// shares without asking each other.
std::vector<std::vector<Region>> save_shares(const Mesh& mesh, int rank,
                                             std::span<const TensorOnRanks> tensors,
                                             int64_t least_cut = kLeastCut);

}  // namespace tessera
