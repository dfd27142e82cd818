#include "comm/flat_pieces.h"

#include <numeric>

#include "base/error.h"

namespace tessera {

int64_t FlatPieces::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

size_t FlatPieces::first_index(const Mesh& mesh, int rank, size_t axis_count) const {
  int first = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    first = first * mesh.size(axes[i]) + (i < axis_count ? mesh.coordinate(rank, axes[i]) : 0);
  }
  return static_cast<size_t>(first);
}

size_t FlatPieces::piece_count(const Mesh& mesh, size_t axis_count) const {
  size_t count = 1;
  for (size_t i = axis_count; i < axes.size(); ++i) {
    count *= static_cast<size_t>(mesh.size(axes[i]));
  }
  return count;
}

ElementRun FlatPieces::run_of(const Mesh& mesh, int rank, size_t axis_count) const {
  const size_t first = first_index(mesh, rank, axis_count);
  const size_t count = piece_count(mesh, axis_count);
  TESSERA_CHECK(first + count <= sizes.size(), "piece {} of {}", first, sizes.size());
  const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(first);
  return {std::accumulate(sizes.begin(), begin, int64_t{0}),
          std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), int64_t{0})};
}

FlatPieces FlatPieces::outer(const Mesh& mesh, size_t axis_count) const {
  FlatPieces result{.axes = {axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(axis_count)},
                    .sizes = {}};
  const size_t count = piece_count(mesh, axis_count);
  for (auto begin = sizes.begin(); begin != sizes.end();) {
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    result.sizes.push_back(std::accumulate(begin, end, int64_t{0}));
    begin = end;
  }
  return result;
}

FlatPieces FlatPieces::within(const Mesh& mesh, int rank, size_t axis_count) const {
  const auto begin =
      sizes.begin() + static_cast<std::ptrdiff_t>(first_index(mesh, rank, axis_count));
  return {.axes = {axes.begin() + static_cast<std::ptrdiff_t>(axis_count), axes.end()},
          .sizes = {begin, begin + static_cast<std::ptrdiff_t>(piece_count(mesh, axis_count))}};
}

TypeOnAxis FlatPieces::type() const {
  return sharded(0, {.kind = PieceKind::flat, .sizes = sizes});
}

Distribution FlatPieces::distribution(Distribution whole) const {
  for (const Axis axis : axes) whole = whole.with(axis, type());
  return whole;
}

}  // namespace tessera
