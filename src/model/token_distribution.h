#pragma once

#include "comm/distribution.h"

namespace tessera {

/// How a model's tokens lie over the ranks of a stage. Tokens are sequences × positions, in one dim
/// 0. The levels of the data axis split the sequences. The context axis splits the positions.
///
/// The tensor axis splits the positions once more, but only of what lies between the parallel parts
/// of a layer (sequence parallelism, Korthikanti et al. 2022): the residual stream, norms, routers.
/// Before attention, a feed-forward block and the head they are gathered over that axis.
struct TokenDistribution {
  Distribution tokens;   ///< of ids, and of what each tensor rank holds for all of its tokens
  TypeOnAxis positions;  ///< the type on the tensor axis of the residual stream

  /// Of the residual stream.
  Distribution stream(const Mesh& mesh) const { return tokens.with(mesh.tensor(), positions); }
};

/// The distribution of a batch of `sequences` sequences, counted over all ranks. Throws Error, with
/// the numbers, if they do not divide over the data axis.
TokenDistribution distribute_tokens(const Mesh& mesh, int64_t sequences);

}  // namespace tessera
