#include "comm/distribution.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "base/words.h"

namespace tessera {

bool Pieces::operator==(const Pieces& other) const {
  const bool same_origin =
      origin == other.origin || (origin && other.origin && *origin == *other.origin);
  return kind == other.kind && sizes == other.sizes && identity == other.identity && same_origin;
}

std::string Pieces::text(const Mesh* mesh) const {
  if (kind == PieceKind::tokens && mesh != nullptr && origin) {
    return fmt::format("{} that are {}", text(), origin->text(*mesh));
  }
  if (kind == PieceKind::exchange) return fmt::format("exchange {}", identity);
  if (sizes.empty()) return std::string(word(kind));
  return fmt::format("{} {}", word(kind), fmt::join(sizes, " + "));
}

std::string pieces_text(std::string_view pieces, int factor, int64_t repeats) {
  std::string text(pieces);
  if (factor != 0) text += fmt::format(", factor {}", factor);
  if (repeats != 1) text += fmt::format(", repeated {} times", repeats);
  return text;
}

std::string TypeOnAxis::text(const Mesh* mesh) const {
  if (!split()) return std::string(word(placement));
  return fmt::format("{} (dim {}, {})", word(placement), dim,
                     pieces_text(pieces.text(mesh), factor, repeats));
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

bool Distribution::has_copies_beyond(const Mesh& mesh, std::span<const Axis> axes) const {
  return std::ranges::any_of(mesh.axes_of(view_), [&](Axis axis) {
    return mesh.size(axis) > 1 && on(axis).same_on_ranks() &&
           std::ranges::find(axes, axis) == axes.end();
  });
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
  for (size_t dim = 0; dim < orders_.size(); ++dim) {
    const std::vector<Axis>& order = orders_[dim];
    const auto key = [&](Axis axis) { return std::pair(on(axis).factor, -axis.index); };
    if (std::ranges::is_sorted(order, {}, key)) continue;
    std::vector<std::string> names;
    for (const Axis axis : order) names.emplace_back(mesh.name(axis));
    parts.push_back(fmt::format("dim {} over {}, outermost first", dim, join(names, ", ")));
  }
  if (!parts.empty()) return join(parts, ", ");
  return view_ == MeshView::dense ? "invariant" : "invariant in the expert view";
}

}  // namespace tessera
