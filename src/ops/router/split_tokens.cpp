#include "ops/router/split_tokens.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/collective/convert.h"

namespace tessera {
namespace {

/// The tokens of the ranks over which the factors of dim 0 from `first_factor` on are split.
int64_t tokens_over(const Mesh& mesh, int rank, const Spec& spec, int first_factor) {
  int64_t tokens = spec.shape[0];
  for (const Axis axis : mesh.of_view(spec.distribution.view())) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    if (!type.split() || type.dim != 0 || type.factor < first_factor) continue;
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

}  // namespace

int64_t tokens_of_all(const Mesh& mesh, int rank, const Spec& spec) {
  return tokens_over(mesh, rank, spec, 0);
}

int64_t tokens_of_set(const Mesh& mesh, int rank, const Spec& spec, int64_t sets) {
  return tokens_over(mesh, rank, spec, 1) / sets;
}

Value sum_of_ranks(Builder& builder, Value value) {
  for (const Axis axis :
       builder.program().mesh().of_view(builder.spec(value).distribution.view())) {
    if (builder.spec(value).distribution.on(axis).placement != Placement::partial) continue;
    value = convert(builder, value, axis, Placement::partial, invariant());
  }
  return value;
}

bool splits_tokens(const Mesh& mesh, const Spec& spec) {
  return std::ranges::any_of(mesh.of_view(spec.distribution.view()), [&](Axis axis) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    return type.split() && type.dim == 0;
  });
}

}  // namespace tessera
