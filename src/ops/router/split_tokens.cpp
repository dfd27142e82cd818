#include "ops/router/split_tokens.h"

#include <algorithm>

namespace tessera {

bool splits_tokens(const Mesh& mesh, const Spec& spec) {
  return std::ranges::any_of(mesh.of_view(spec.distribution.view()), [&](Axis axis) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    return type.split() && type.dim == 0;
  });
}

}  // namespace tessera
