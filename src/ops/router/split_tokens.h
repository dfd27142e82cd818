#pragma once

#include "comm/mesh.h"
#include "program/value.h"

namespace tessera {

/// Whether a value's tokens, dim 0, are split over the ranks of any axis, be it of one rank.
bool splits_tokens(const Mesh& mesh, const Spec& spec);

}  // namespace tessera
