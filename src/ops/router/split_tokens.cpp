#include "ops/router/split_tokens.h"

#include <algorithm>
#include <vector>

#include "comm/piece_indices.h"
#include "ops/collective/convert.h"
#include "ops/collective/move.h"

namespace tessera {

int64_t tokens_of_set(const Mesh& mesh, const Spec& spec, int64_t sets) {
  Distribution inner = spec.distribution;
  for (const Axis axis : mesh.axes_of(inner.view())) {
    const TypeOnAxis& type = inner.on(axis);
    if (type.split() && type.dim == 0 && type.factor == 0) inner = inner.with(axis, replicated());
  }
  return logical_extent(mesh, inner, 0, spec.shape[0]) / sets;
}

Value sum_of_ranks(Builder& builder, Value value, std::initializer_list<Placement> accepted) {
  std::vector<Conversion> sums;
  for (const Axis axis : axes_of_sum(builder, value, accepted)) {
    sums.push_back({.axis = axis, .from = Placement::partial, .to = invariant()});
  }
  return sums.empty() ? value : convert_all(builder, value, sums);
}

bool splits_tokens(const Mesh& mesh, const Spec& spec) {
  return std::ranges::any_of(mesh.axes_of(spec.distribution.view()), [&](Axis axis) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    return type.split() && type.dim == 0;
  });
}

}  // namespace tessera
