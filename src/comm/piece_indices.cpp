#include "comm/piece_indices.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/words.h"

// piece_runs() divides a dim over one axis, or over axes that split it together. piece_of_dim()
// applies this to one split after the other; logical_extent() goes back from a piece to the whole.

namespace tessera {
namespace {

/// Returns whether neighbouring axes that all have these pieces split the dim together: flat pieces
/// with a list, which has a size for each rank of all these axes (Pieces::sizes).
bool are_joint(const Pieces& pieces) {
  return pieces.kind == PieceKind::flat && !pieces.sizes.empty();
}

/// Returns the first of the axes, and the axes after it that split the dim together with it.
std::span<const Axis> first_split(const Distribution& distribution, std::span<const Axis> axes) {
  size_t count = 1;
  const Pieces& first = distribution.on(axes[0]).pieces;
  while (are_joint(first) && count < axes.size() && distribution.on(axes[count]).pieces == first) {
    ++count;
  }
  return axes.first(count);
}

/// Returns a rank's position among the ranks of these axes, and the number of these ranks. The axes
/// are listed outermost first.
std::pair<int, int> position_among(const Mesh& mesh, std::span<const Axis> axes, int rank) {
  int position = 0;
  int count = 1;
  for (const Axis axis : axes) {
    position = position * mesh.size(axis) + mesh.coordinate(rank, axis);
    count *= mesh.size(axis);
  }
  return {position, count};
}

std::vector<ElementRun> listed_run(std::span<const int64_t> sizes, int64_t extent, int position,
                                   int count) {
  TESSERA_CHECK(static_cast<int>(sizes.size()) == count, "{} listed pieces for {} ranks",
                sizes.size(), count);
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != extent) {
    throw Error("uneven pieces do not add up to {} elements", extent);
  }
  return {{std::accumulate(sizes.begin(), sizes.begin() + position, int64_t{0}),
           sizes[static_cast<size_t>(position)]}};
}

}  // namespace

void append_run(std::vector<ElementRun>& runs, const ElementRun& run) {
  if (run.length == 0) return;
  if (!runs.empty() && runs.back().begin + runs.back().length == run.begin) {
    runs.back().length += run.length;
  } else {
    runs.push_back(run);
  }
}

ElementRun intersection(const ElementRun& a, const ElementRun& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max<int64_t>(0, std::min(a.begin + a.length, b.begin + b.length) - begin)};
}

Pieces nearly_even(int64_t extent, int ranks) {
  if (extent < ranks) throw Error("{} elements are too few for {} ranks", extent, ranks);
  if (extent % ranks == 0) return {};
  constexpr int64_t kAlignedPack = 8;
  const int64_t pack = extent >= kAlignedPack * ranks ? kAlignedPack : 1;
  const int64_t packs = (extent + pack - 1) / pack;
  Pieces pieces{.kind = PieceKind::uneven};
  for (int rank = 0; rank < ranks; ++rank) {
    // The first ranks have one pack more. The last pack may be incomplete.
    pieces.sizes.push_back(pack * (packs / ranks + (rank < packs % ranks ? 1 : 0)));
  }
  pieces.sizes.back() -= pack * packs - extent;
  return pieces;
}

bool has_uneven_tokens(const TypeOnAxis& type) {
  if (!type.split() || !type.pieces.origin) return false;
  const Distribution& origin = *type.pieces.origin;
  return std::ranges::any_of(
      origin.order(0), [&](Axis axis) { return origin.on(axis).pieces.kind == PieceKind::uneven; });
}

int64_t joined_extent(const TypeOnAxis& type, int ranks, int64_t own_extent) {
  if (has_uneven_tokens(type)) {
    throw Error(
        "how many {} the ranks of one axis have does not follow from the {} of one of them: they "
        "were uneven pieces before they crossed",
        type.pieces.text(), own_extent);
  }
  if (type.pieces.sizes.empty()) return own_extent * ranks;
  const std::vector<int64_t>& sizes = type.pieces.sizes;
  const auto is_own = [&](int64_t size) { return size * type.repeats == own_extent; };
  if (own_extent != 0 && std::ranges::none_of(sizes, is_own)) {
    throw Error("a rank has {} elements of pieces that are {}; expected one of these sizes",
                own_extent, pieces_text(type.pieces.text(), type.factor, type.repeats));
  }
  return type.repeats * std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

int64_t logical_extent(const Mesh& mesh, const Distribution& distribution, int dim,
                       int64_t own_extent) {
  const std::span<const Axis> axes = distribution.order(dim);
  const auto origin = [&](Axis axis) { return distribution.on(axis).pieces.origin; };
  const bool all_tokens =
      axes.size() == mesh.axes_of(distribution.view()).size() && origin(axes[0]) &&
      std::ranges::all_of(axes, [&](Axis axis) { return origin(axis) == origin(axes[0]); });
  if (all_tokens) return logical_extent(mesh, *origin(axes[0]), dim, own_extent);
  int64_t extent = own_extent;
  for (size_t i = axes.size(); i-- > 0;) {  // from the innermost split outwards
    // Axes that split the dim together all list the sizes of all pieces: counts them once.
    const bool is_counted = i > 0 && first_split(distribution, axes.subspan(i - 1, 2)).size() == 2;
    if (!is_counted) extent = joined_extent(distribution.on(axes[i]), mesh.size(axes[i]), extent);
  }
  return extent;
}

std::vector<ElementRun> piece_runs(int64_t extent, int position, int count, const Pieces& pieces) {
  const auto divided = [&](int64_t parts) {
    if (extent % parts != 0) {
      throw Error("{} elements do not divide into {} {} pieces", extent, parts, word(pieces.kind));
    }
    return extent / parts;
  };
  switch (pieces.kind) {
    case PieceKind::even:
    case PieceKind::flat: {
      if (are_joint(pieces)) return listed_run(pieces.sizes, extent, position, count);
      const int64_t size = divided(count);
      return {{position * size, size}};
    }
    case PieceKind::zigzag: {
      if (count == 1) return {{0, extent}};
      const int64_t size = divided(int64_t{2} * count);
      return {{position * size, size}, {(2 * count - 1 - position) * size, size}};
    }
    case PieceKind::uneven:
      return listed_run(pieces.sizes, extent, position, count);
    case PieceKind::tokens:
    case PieceKind::exchange:
      break;
  }
  throw InternalError(fmt::format("{} have no logical whole", pieces.text()));
}

std::vector<int64_t> piece_indices(int64_t extent, int position, int count, const Pieces& pieces) {
  std::vector<int64_t> indices;
  for (const ElementRun& run : piece_runs(extent, position, count, pieces)) {
    for (int64_t i = 0; i < run.length; ++i) indices.push_back(run.begin + i);
  }
  return indices;
}

std::vector<int64_t> piece_of_dim(const Mesh& mesh, const Distribution& distribution, int dim,
                                  int64_t extent, int rank) {
  // Splits of outer factors come first, and leave the inner factors whole. So the rank's indices
  // consist of type.repeats equal parts, and the next axis splits each of them.
  std::vector<int64_t> indices(static_cast<size_t>(extent));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  for (std::span<const Axis> remaining = distribution.order(dim); !remaining.empty();) {
    const std::span<const Axis> axes = first_split(distribution, remaining);
    remaining = remaining.subspan(axes.size());
    const TypeOnAxis& type = distribution.on(axes[0]);
    const auto count_before = static_cast<int64_t>(indices.size());
    TESSERA_CHECK(count_before % type.repeats == 0, "{} repeats of {} elements", type.repeats,
                  count_before);
    const int64_t inner = count_before / type.repeats;
    const auto [position, count] = position_among(mesh, axes, rank);
    const std::vector<int64_t> own = piece_indices(inner, position, count, type.pieces);
    std::vector<int64_t> own_indices;
    own_indices.reserve(own.size() * static_cast<size_t>(type.repeats));
    for (int64_t repeat = 0; repeat < type.repeats; ++repeat) {
      for (const int64_t index : own) {
        own_indices.push_back(indices[static_cast<size_t>(repeat * inner + index)]);
      }
    }
    indices = std::move(own_indices);
  }
  return indices;
}

}  // namespace tessera
