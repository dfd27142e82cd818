#pragma once

#include "comm/distribution.h"

namespace tessera::testing {

/// Tokens [tokens, ...] that the ranks of all axes of the dense view share.
inline Distribution all_tokens(const Mesh& mesh) {
  Distribution tokens;
  for (size_t level = mesh.data().size(); level-- > 0;) {
    tokens = tokens.with(mesh.data()[level], sharded(0));
  }
  return tokens.with(mesh.context(), sharded(0)).with(mesh.tensor(), sharded(0));
}

}  // namespace tessera::testing
