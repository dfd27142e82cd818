#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "program/value.h"

namespace tessera {

/// The tokens of all ranks, of which a value [tokens, ...] has those of one rank.
int64_t tokens_of_all(const Mesh& mesh, int rank, const Spec& spec);

/// Whether a value's tokens, dim 0, are split over the ranks of any axis, be it of one rank.
bool splits_tokens(const Mesh& mesh, const Spec& spec);

}  // namespace tessera
