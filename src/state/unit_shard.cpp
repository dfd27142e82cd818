#include "state/unit_shard.h"

#include <algorithm>

#include "base/error.h"
#include "base/round_up.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// The place next to `wanted` at which flat memory may be cut.
int64_t nearest_cut(std::span<const ElementRun> parameters, int64_t elements, int64_t wanted,
                    int64_t grain) {
  const auto after = std::ranges::upper_bound(parameters, wanted, {}, &ElementRun::place);
  if (after == parameters.begin()) return 0;
  const ElementRun& of = *(after - 1);
  const int64_t next = after == parameters.end() ? elements : after->place;
  const int64_t below = of.place + (wanted - of.place) / grain * grain;
  const int64_t above = below + grain < of.place + of.length ? below + grain : next;
  return wanted - below <= above - wanted ? below : above;
}

/// Adds the boxes of a run of elements of dim `dim` and those within it. `outer` has the elements
/// of the dims outside it.
void add_boxes(const Shape& shape, int dim, const ElementRun& run, std::vector<ElementRun> outer,
               std::vector<std::vector<ElementRun>>& boxes) {
  if (run.length == 0) return;
  int64_t inner = 1;
  for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
  const auto with = [&](int64_t place, int64_t length) {
    std::vector<ElementRun> dims = outer;
    dims.push_back({place, length});
    return dims;
  };
  const int64_t end = run.place + run.length;
  const int64_t first = (run.place + inner - 1) / inner;  // whole elements of this dim
  const int64_t last = end / inner;
  if (first > last) {  // within one element of this dim
    return add_boxes(shape, dim + 1, {run.place - last * inner, run.length}, with(last, 1), boxes);
  }
  if (run.place < first * inner) {
    const int64_t begin = run.place - (first - 1) * inner;
    add_boxes(shape, dim + 1, {begin, inner - begin}, with(first - 1, 1), boxes);
  }
  if (first < last) {
    boxes.push_back(with(first, last - first));
    for (int d = dim + 1; d < shape.rank(); ++d) boxes.back().push_back({0, shape[d]});
  }
  if (last * inner < end) {
    add_boxes(shape, dim + 1, {0, end - last * inner}, with(last, 1), boxes);
  }
}

/// Whether ranks have pieces of different sizes of a parameter's matrices. Then their elements do
/// not say where all of them cut the same matrices.
bool has_uneven_matrices(const Mesh& mesh, const ParameterSpec& spec) {
  for (const Axis axis : mesh.of_view(spec.distribution.view())) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    if (type.split() && type.dim >= spec.shape.rank() - 2 && !type.pieces.sizes.empty()) {
      return true;
    }
  }
  return false;
}

/// The flat memory of some units, one after the other, as a rank has it.
class FlatUnits {
 public:
  /// `of_matrices`: all ranks that have pieces of a matrix have to cut the same ones.
  explicit FlatUnits(bool of_matrices) : of_matrices_(of_matrices) {}

  void add(const Mesh& mesh, std::span<const ParameterSpec> parameters, size_t unit, int rank) {
    units_.push_back({unit, elements_, 0});
    for (const ParameterSpec& spec : parameters) {
      if (spec.unit_index != static_cast<int>(unit)) continue;
      const int64_t own = TensorPiece(mesh, spec.distribution, spec.shape, rank).shape().elements();
      own_.push_back({elements_, own});
      wholes_.push_back({whole_, spec.shape.elements()});
      elements_ += round_up(own, kAlignment);
      whole_ += round_up(spec.shape.elements(), kAlignment);
      uneven_ = uneven_ || has_uneven_matrices(mesh, spec);
    }
    units_.back().length = elements_ - units_.back().place;
  }

  /// The pieces of one of the units.
  std::vector<int64_t> cut(int ranks, size_t unit) const {
    const auto found = std::ranges::find(units_, unit, &Unit::number);
    const ElementRun of_unit{found->place, found->length};
    std::vector<int64_t> sizes;
    int64_t begin = 0;
    for (const int64_t size : cut_all(ranks)) {
      sizes.push_back(common({begin, size}, of_unit).length);
      begin += size;
    }
    return sizes;
  }

 private:
  struct Unit {
    size_t number;
    int64_t place, length;
  };

  std::vector<int64_t> cut_all(int ranks) const {
    if (!of_matrices_ || !uneven_) return cut_evenly(own_, elements_, ranks);
    // Between parameters alone, at the same ones on all ranks.
    const std::vector<int64_t> wholes = cut_evenly(wholes_, whole_, ranks, whole_);
    std::vector<int64_t> sizes;
    int64_t end_of_whole = 0, begin = 0;
    for (const int64_t size : wholes) {
      end_of_whole += size;
      const auto next = std::ranges::lower_bound(wholes_, end_of_whole, {}, &ElementRun::place);
      const int64_t end = next == wholes_.end()
                              ? elements_
                              : own_[static_cast<size_t>(next - wholes_.begin())].place;
      sizes.push_back(end - begin);
      begin = end;
    }
    return sizes;
  }

  std::vector<Unit> units_;
  std::vector<ElementRun> own_, wholes_;  // by parameter
  int64_t elements_ = 0, whole_ = 0;
  bool of_matrices_;
  bool uneven_ = false;
};

}  // namespace

std::vector<int64_t> cut_evenly(std::span<const ElementRun> parameters, int64_t elements,
                                int pieces, int64_t grain) {
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    const int64_t wanted =
        elements / pieces * (piece + 1) + elements % pieces * (piece + 1) / pieces;
    const int64_t end = piece + 1 == pieces
                            ? elements
                            : std::max(begin, nearest_cut(parameters, elements, wanted, grain));
    sizes.push_back(end - begin);
    begin = end;
  }
  return sizes;
}

std::vector<std::vector<ElementRun>> boxes_of_run(const Shape& shape, const ElementRun& run) {
  std::vector<std::vector<ElementRun>> boxes;
  if (shape.rank() == 0) {
    if (run.length > 0) boxes.emplace_back();
    return boxes;
  }
  add_boxes(shape, 0, run, {}, boxes);
  return boxes;
}

StateShards::StateShards(const Mesh& mesh, const ParameterList& parameters,
                         const StateSharing& sharing)
    : StateShards(mesh, parameters.units(), parameters.specs(), sharing) {}

StateShards::StateShards(const Mesh& mesh, std::span<const ParameterUnit> units,
                         std::span<const ParameterSpec> parameters, const StateSharing& sharing)
    : mesh_(mesh), units_(units), parameters_(parameters), sharing_(sharing) {}

int64_t StateShards::first_of_unit(size_t unit, int rank) const {
  const FlatPieces& pieces = of_unit(unit, rank);
  return pieces.cut() ? pieces.of(mesh_, rank).place : 0;
}

ElementRun StateShards::held(size_t parameter, int rank) const {
  const UnitLayout& unit = layout(static_cast<size_t>(parameters_[parameter].unit_index), rank);
  const int64_t first = unit.firsts.at(parameter);
  const int64_t elements = unit.of_ranks.at(parameter).shape().elements();
  if (!unit.pieces.cut()) return {0, elements};
  ElementRun held = common(unit.pieces.of(mesh_, rank), {first, elements});
  held.place = held.length == 0 ? 0 : held.place - first;
  return held;
}

std::vector<TensorPiece> StateShards::pieces(size_t parameter, int rank) const {
  const UnitLayout& unit = layout(static_cast<size_t>(parameters_[parameter].unit_index), rank);
  const TensorPiece& of_rank = unit.of_ranks.at(parameter);
  if (!unit.pieces.cut()) return {of_rank};
  std::vector<TensorPiece> pieces;
  for (const auto& box : boxes_of_run(of_rank.shape(), held(parameter, rank))) {
    pieces.push_back(of_rank.part(box));
  }
  return pieces;
}

Distribution StateShards::distribution(size_t parameter) const {
  const ParameterSpec& spec = parameters_[parameter];
  Distribution result = spec.distribution;
  for (const Axis axis : axes_of_cut(static_cast<size_t>(spec.unit_index))) {
    result = result.with(axis, sharded(0, {.kind = PieceKind::flat}));
  }
  return result;
}

const StateShards::UnitLayout& StateShards::layout(size_t unit, int rank) const {
  std::vector<int> place;
  const Distribution& lies = units_[unit].distribution;
  for (const Axis axis : mesh_.of_view(lies.view())) {
    if (lies.on(axis).split()) place.push_back(mesh_.coordinate(rank, axis));
  }
  const auto key = std::pair(unit, std::move(place));
  const auto known = layouts_.find(key);
  if (known != layouts_.end()) return known->second;
  return layouts_.emplace(key, make_layout(unit, rank)).first->second;
}

StateShards::UnitLayout StateShards::make_layout(size_t unit, int rank) const {
  UnitLayout result;
  int64_t elements = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterSpec& spec = parameters_[i];
    if (spec.unit_index != static_cast<int>(unit)) continue;
    const TensorPiece piece(mesh_, spec.distribution, spec.shape, rank);
    result.firsts.emplace(i, elements);
    elements += round_up(piece.shape().elements(), kAlignment);
    result.of_ranks.emplace(i, piece);
  }
  if (!axes_of_cut(unit).empty()) result.pieces = cut(unit, rank);
  return result;
}

FlatPieces StateShards::cut(size_t unit, int rank) const {
  const std::span<const Axis> axes = axes_of_cut(unit);
  int ranks = 1;
  for (const Axis axis : axes) ranks *= mesh_.size(axis);
  FlatUnits memory(sharing_.whole_matrices && units_[unit].matrices);
  for (size_t other = 0; other < units_.size(); ++other) {
    if (cut_together(other, unit)) memory.add(mesh_, parameters_, other, rank);
  }
  return {{axes.begin(), axes.end()}, memory.cut(ranks, unit)};
}

bool StateShards::cut_together(size_t unit, size_t other) const {
  if (unit == other) return true;
  const ParameterUnit& a = units_[unit];
  const ParameterUnit& b = units_[other];
  return sharing_.whole_matrices && a.matrices && b.matrices && a.dtype == b.dtype &&
         a.distribution == b.distribution && a.changed_by == b.changed_by;
}

std::span<const Axis> StateShards::axes_of_cut(size_t unit) const {
  if (sharing_.over == ShardOver::none || !units_[unit].has_gradients()) return {};
  return units_[unit].distribution.view() == MeshView::dense ? mesh_.data() : mesh_.expert_data();
}

std::vector<int> StateShards::sharers(size_t parameter, int rank) const {
  const std::span<const Axis> axes =
      axes_of_cut(static_cast<size_t>(parameters_[parameter].unit_index));
  std::vector<int> ranks = mesh_.group(rank, axes);
  std::ranges::sort(ranks, {}, [&](int other) {
    std::vector<int> place;
    for (const Axis axis : axes) place.push_back(mesh_.coordinate(other, axis));
    return place;
  });
  return ranks;
}

}  // namespace tessera
