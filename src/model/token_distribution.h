#pragma once

#include "comm/distribution.h"

namespace tessera {

/// The distribution of a model's tokens over the ranks of a stage. Tokens are sequences ×
/// positions, in one dim 0. The levels of the data axis split the sequences. The context axis
/// splits the positions.
///
/// The tensor axis splits the positions once more, but only between the parallel parts of a layer
/// (sequence parallelism, Korthikanti et al. 2022): in the residual stream, norms, routers. Before
/// attention, a feed-forward block and the head they are gathered over that axis.
struct TokenDistribution {
  Distribution tokens;   ///< of ids, and of values that each tensor rank has for all its tokens
  TypeOnAxis positions;  ///< the type on the tensor axis of the residual stream

  /// Returns the distribution of the residual stream.
  Distribution stream(const Mesh& mesh) const { return tokens.with(mesh.tensor(), positions); }
};

/// Returns the distribution of a batch of `sequences` sequences, counted over all ranks. Throws
/// Error, with the numbers, if they do not divide over the data axis.
TokenDistribution distribute_tokens(const Mesh& mesh, int64_t sequences);

}  // namespace tessera
