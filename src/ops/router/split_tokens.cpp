#include "ops/router/split_tokens.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tessera {

int64_t tokens_of_all(const Mesh& mesh, int rank, const Spec& spec) {
  int64_t tokens = spec.shape[0];
  for (const Axis axis : mesh.of_view(spec.distribution.view())) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    if (!type.split() || type.dim != 0) continue;
    if (type.pieces.kind == PieceKind::uneven) {
      const std::vector<int64_t>& sizes = type.pieces.sizes;
      const int64_t own = sizes[static_cast<size_t>(mesh.coordinate(rank, axis))];
      TESSERA_CHECK(own > 0, "a rank without tokens cannot tell how many there are");
      tokens = tokens / own * std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    } else {
      tokens *= mesh.size(axis);
    }
  }
  return tokens;
}

bool splits_tokens(const Mesh& mesh, const Spec& spec) {
  return std::ranges::any_of(mesh.of_view(spec.distribution.view()), [&](Axis axis) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    return type.split() && type.dim == 0;
  });
}

}  // namespace tessera
