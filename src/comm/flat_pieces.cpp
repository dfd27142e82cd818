#include "comm/flat_pieces.h"

#include <numeric>

#include "base/error.h"

namespace tessera {

int64_t FlatPieces::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

ElementRun FlatPieces::of(const Mesh& mesh, int rank, size_t outer) const {
  std::ptrdiff_t first = 0;
  std::ptrdiff_t count = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int size = mesh.size(axes[i]);
    first = first * size + (i < outer ? mesh.coordinate(rank, axes[i]) : 0);
    count *= i < outer ? 1 : size;
  }
  TESSERA_CHECK(first + count <= std::ssize(sizes), "piece {} of {}", first, sizes.size());
  const auto begin = sizes.begin() + first;
  return {std::accumulate(sizes.begin(), begin, int64_t{0}),
          std::accumulate(begin, begin + count, int64_t{0})};
}

TypeOnAxis FlatPieces::type() const {
  return sharded(0, {.kind = PieceKind::flat, .sizes = sizes});
}

Distribution FlatPieces::distribution(Distribution whole) const {
  for (const Axis axis : axes) whole = whole.with(axis, type());
  return whole;
}

}  // namespace tessera
