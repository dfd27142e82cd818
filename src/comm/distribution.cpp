#include "comm/distribution.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "base/words.h"

namespace tessera {

bool Pieces::operator==(const Pieces& other) const {
  const bool same_origin =
      origin == other.origin || (origin && other.origin && *origin == *other.origin);
  return kind == other.kind && sizes == other.sizes && identity == other.identity && same_origin;
}

std::string Pieces::text() const {
  if (kind == PieceKind::exchange) return fmt::format("exchange {}", identity);
  return std::string(word(kind));
}

std::string TypeOnAxis::text() const {
  if (!split()) return std::string(word(placement));
  return fmt::format("{} (dim {}, {}{})", word(placement), dim, pieces.text(),
                     factor == 0 ? "" : fmt::format(", factor {}", factor));
}

Pieces nearly_even(int64_t extent, int ranks) {
  if (extent < ranks) throw Error("{} elements are too few for {} ranks", extent, ranks);
  if (extent % ranks == 0) return {};
  constexpr int64_t kPack = 8;
  const int64_t pack = extent >= kPack * ranks ? kPack : 1;
  const int64_t packs = (extent + pack - 1) / pack;
  Pieces pieces{.kind = PieceKind::uneven};
  for (int rank = 0; rank < ranks; ++rank) {
    // The first ranks have a pack more. The last pack may be short.
    pieces.sizes.push_back(pack * (packs / ranks + (rank < packs % ranks ? 1 : 0)));
  }
  pieces.sizes.back() -= pack * packs - extent;
  return pieces;
}

TypeOnAxis invariant() { return {}; }
TypeOnAxis replicated() { return {.placement = Placement::replicated}; }
TypeOnAxis partial() { return {.placement = Placement::partial}; }

TypeOnAxis sharded(int dim, Pieces pieces, int factor, int64_t repeats) {
  return {Placement::sharded, dim, std::move(pieces), factor, repeats};
}

TypeOnAxis varying(int dim, Pieces pieces, int factor) {
  return {Placement::varying, dim, std::move(pieces), factor, 1};
}

TypeOnAxis dual(const TypeOnAxis& type) {
  if (type.placement == Placement::replicated) return partial();
  if (type.placement == Placement::partial) return replicated();
  return type;
}

const TypeOnAxis& Distribution::on(Axis axis) const {
  static const TypeOnAxis invariant;
  const auto index = static_cast<size_t>(axis.index);
  return index < types_.size() ? types_[index] : invariant;
}

std::span<const Axis> Distribution::order(int dim) const {
  const auto index = static_cast<size_t>(dim);
  return index < orders_.size() ? std::span<const Axis>(orders_[index]) : std::span<const Axis>();
}

std::vector<Axis> Distribution::joining_order(int dim) const {
  const std::span<const Axis> axes = order(dim);
  return {axes.rbegin(), axes.rend()};
}

Distribution Distribution::with(Axis axis, const TypeOnAxis& type) const {
  TESSERA_CHECK(axis.index >= 0 && (!type.split() || type.dim >= 0), "axis {}, dim {}", axis.index,
                type.dim);
  Distribution result = *this;
  const TypeOnAxis& before = on(axis);
  if (before.split() && !(type.split() && type.dim == before.dim)) {
    std::erase(result.orders_[static_cast<size_t>(before.dim)], axis);
  }
  if (type.split() && !(before.split() && type.dim == before.dim)) {
    const auto dim = static_cast<size_t>(type.dim);
    if (result.orders_.size() <= dim) result.orders_.resize(dim + 1);
    result.orders_[dim].push_back(axis);
  }
  const auto index = static_cast<size_t>(axis.index);
  if (result.types_.size() <= index) result.types_.resize(index + 1);
  result.types_[index] = type;
  while (!result.types_.empty() && result.types_.back() == TypeOnAxis{}) result.types_.pop_back();
  while (!result.orders_.empty() && result.orders_.back().empty()) result.orders_.pop_back();
  return result;
}

Distribution Distribution::in_view(MeshView view) const {
  Distribution result = *this;
  result.view_ = view;
  return result;
}

Distribution Distribution::dual() const {
  Distribution result = *this;
  for (TypeOnAxis& type : result.types_) type = tessera::dual(type);
  return result;
}

std::string Distribution::text(const Mesh& mesh) const {
  std::vector<std::string> parts;
  for (size_t i = 0; i < types_.size(); ++i) {
    if (types_[i].placement == Placement::invariant) continue;
    parts.push_back(fmt::format("{}: {}", mesh.name({static_cast<int>(i)}), types_[i].text()));
  }
  return parts.empty() ? "invariant" : join(parts, ", ");
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
      const int64_t size = divided(count);
      return {{position * size, size}};
    }
    case PieceKind::zigzag: {
      if (count == 1) return {{0, extent}};
      const int64_t size = divided(int64_t{2} * count);
      return {{position * size, size}, {(2 * count - 1 - position) * size, size}};
    }
    case PieceKind::uneven: {
      TESSERA_CHECK(static_cast<int>(pieces.sizes.size()) == count, "{} uneven pieces for {} ranks",
                    pieces.sizes.size(), count);
      const auto begin = pieces.sizes.begin();
      if (std::accumulate(begin, pieces.sizes.end(), int64_t{0}) != extent) {
        throw Error("uneven pieces do not add up to {} elements", extent);
      }
      return {{std::accumulate(begin, begin + position, int64_t{0}),
               pieces.sizes[static_cast<size_t>(position)]}};
    }
    case PieceKind::tokens:
    case PieceKind::exchange:
      break;
  }
  throw InternalError(fmt::format("{} have no logical whole", pieces.text()));
}

int64_t joined_extent(const TypeOnAxis& type, int64_t own, int count) {
  if (type.pieces.kind != PieceKind::uneven) return own * count;
  const std::vector<int64_t>& sizes = type.pieces.sizes;
  return type.repeats * std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

std::vector<int64_t> piece(int64_t extent, int position, int count, const Pieces& pieces) {
  std::vector<int64_t> indices;
  for (const ElementRun& run : piece_runs(extent, position, count, pieces)) {
    for (int64_t i = 0; i < run.length; ++i) indices.push_back(run.place + i);
  }
  return indices;
}

std::vector<int64_t> piece_of_dim(const Mesh& mesh, const Distribution& distribution, int dim,
                                  int64_t extent, int rank) {
  // Splits of outer factors come first and leave the inner factor whole, so the repeats of what a
  // rank has left are those that the types say.
  std::vector<int64_t> indices(static_cast<size_t>(extent));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  for (const Axis axis : distribution.order(dim)) {
    const TypeOnAxis& type = distribution.on(axis);
    const auto left = static_cast<int64_t>(indices.size());
    TESSERA_CHECK(left % type.repeats == 0, "{} repeats of {} elements", type.repeats, left);
    const int64_t inner = left / type.repeats;
    const std::vector<int64_t> own =
        piece(inner, mesh.coordinate(rank, axis), mesh.size(axis), type.pieces);
    std::vector<int64_t> kept;
    kept.reserve(own.size() * static_cast<size_t>(type.repeats));
    for (int64_t repeat = 0; repeat < type.repeats; ++repeat) {
      for (const int64_t index : own) {
        kept.push_back(indices[static_cast<size_t>(repeat * inner + index)]);
      }
    }
    indices = std::move(kept);
  }
  return indices;
}

}  // namespace tessera
