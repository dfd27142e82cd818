// A unit is a list of parameters in one flat memory, each padded to a multiple of kAlignment
// elements. If ranks share the states out, layout_of_rank() puts units that are cut together one
// after the other, cuts them into a piece for each rank (cut_evenly()), and notes which run of each
// unit is in which piece. held() is the part of a parameter in this rank's piece. pieces() gives
// that part as boxes of the whole tensor, the form in which checkpoints store it.
//
// What no optimizer changes (biases that balance routers) is never cut.

#include "state/state_shard.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// Returns the offset nearest to `wanted` at which flat memory may be cut (see cut_evenly()).
int64_t nearest_cut(std::span<const ElementRun> parameters, int64_t elements, int64_t wanted,
                    int64_t grain) {
  const auto after = std::ranges::upper_bound(parameters, wanted, {}, &ElementRun::begin);
  if (after == parameters.begin()) return 0;
  const ElementRun& parameter = *(after - 1);
  const int64_t next = after == parameters.end() ? elements : after->begin;
  const int64_t below = parameter.begin + (wanted - parameter.begin) / grain * grain;
  const int64_t above = below + grain < parameter.begin + parameter.length ? below + grain : next;
  return wanted - below <= above - wanted ? below : above;
}

/// Adds the boxes of a run to `boxes`. The run counts the elements of one block: dim `dim` and the
/// dims after it. `outer` says which block: one index for each dim before `dim`.
void add_boxes(const Shape& shape, int dim, const ElementRun& run, std::vector<ElementRun> outer,
               std::vector<std::vector<ElementRun>>& boxes) {
  if (run.length == 0) return;
  int64_t inner = 1;
  for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
  const auto box = [&](int64_t begin, int64_t length) {
    std::vector<ElementRun> dims = outer;
    dims.push_back({begin, length});
    return dims;
  };
  const int64_t run_end = run.begin + run.length;
  // The indices of this dim in [first, end) are in the run with all their elements.
  const int64_t first = (run.begin + inner - 1) / inner;
  const int64_t end = run_end / inner;
  if (first > end) {  // the run is within one index of this dim
    return add_boxes(shape, dim + 1, {run.begin - end * inner, run.length}, box(end, 1), boxes);
  }
  if (run.begin < first * inner) {
    const int64_t begin = run.begin - (first - 1) * inner;
    add_boxes(shape, dim + 1, {begin, inner - begin}, box(first - 1, 1), boxes);
  }
  if (first < end) {
    boxes.push_back(box(first, end - first));
    for (int d = dim + 1; d < shape.rank(); ++d) boxes.back().push_back({0, shape[d]});
  }
  if (end * inner < run_end) {
    add_boxes(shape, dim + 1, {0, run_end - end * inner}, box(end, 1), boxes);
  }
}

/// Returns whether ranks have pieces of different sizes of a parameter's matrices. The same offset
/// may then be in different matrices on two ranks.
bool has_uneven_matrices(const Mesh& mesh, const ParameterSpec& spec) {
  for (const Axis axis : mesh.axes_of(spec.distribution.view())) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    if (type.split() && type.dim >= spec.shape.rank() - 2 && !type.pieces.sizes.empty()) {
      return true;
    }
  }
  return false;
}

/// The flat memory that a rank has of one unit, or of several, one after the other.
struct FlatMemory {
  std::vector<ElementRun> own;     // by parameter, in this rank's memory
  std::vector<ElementRun> wholes;  // by parameter, in memory that has all of each parameter
  int64_t elements = 0;            // the size of this rank's memory
  int64_t whole_elements = 0;      // the size of the memory of whole parameters
  bool uneven = false;             // true if ranks have pieces of different sizes of some matrices

  /// Adds a parameter, padded. Returns its run in this rank's memory.
  ElementRun add_parameter(int64_t own_elements, int64_t elements_of_whole) {
    own.push_back({elements, own_elements});
    wholes.push_back({whole_elements, elements_of_whole});
    elements += round_up(own_elements, kAlignment);
    whole_elements += round_up(elements_of_whole, kAlignment);
    return own.back();
  }

  /// Adds the memory of a unit. Returns the offset at which it begins.
  int64_t append_unit(const FlatMemory& unit) {
    const int64_t begin = elements;
    for (const ElementRun& run : unit.own) own.push_back({begin + run.begin, run.length});
    for (const ElementRun& run : unit.wholes) {
      wholes.push_back({whole_elements + run.begin, run.length});
    }
    elements += unit.elements;
    whole_elements += unit.whole_elements;
    uneven = uneven || unit.uneven;
    return begin;
  }

  /// Returns the sizes of the pieces into which this memory is cut over `ranks` ranks. With
  /// `whole_matrices`, all ranks cut the same matrices, so uneven memory is cut between parameters.
  std::vector<int64_t> piece_sizes(int ranks, bool whole_matrices) const {
    return whole_matrices && uneven ? cut_between_parameters(ranks)
                                    : cut_evenly(own, elements, ranks);
  }

  /// Returns the sizes of pieces that are cut only between parameters. The cuts follow from the
  /// sizes of the whole parameters, so all ranks cut between the same parameters.
  std::vector<int64_t> cut_between_parameters(int ranks) const {
    std::vector<int64_t> sizes;
    int64_t end_of_whole = 0, begin = 0;
    for (const int64_t size : cut_evenly(wholes, whole_elements, ranks, whole_elements)) {
      end_of_whole += size;
      const auto next = std::ranges::lower_bound(wholes, end_of_whole, {}, &ElementRun::begin);
      const int64_t end =
          next == wholes.end() ? elements : own[static_cast<size_t>(next - wholes.begin())].begin;
      sizes.push_back(end - begin);
      begin = end;
    }
    return sizes;
  }
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

StateShard::StateShard(const MeshRank& mesh_rank, std::span<const ParameterUnit> units,
                       std::span<const ParameterSpec> parameters, const StateSharing& sharing)
    : mesh_(mesh_rank.mesh),
      rank_(mesh_rank.rank),
      units_(units),
      parameters_(parameters),
      sharing_(sharing),
      layout_(std::make_shared<const Layout>(layout_of_rank())) {}

StateShard::Layout StateShard::layout_of_rank() const {
  Layout result;
  for (const ParameterUnit& unit : units_) {
    for (const Axis axis : mesh_.axes_of(unit.distribution.view())) {
      const bool known = std::ranges::find(result.split_axes, axis) != result.split_axes.end();
      if (unit.distribution.on(axis).split() && !known) result.split_axes.push_back(axis);
    }
  }
  std::vector<FlatMemory> units(units_.size());
  for (const ParameterSpec& spec : parameters_) {
    for (const Axis axis : mesh_.axes_of(spec.distribution.view())) {
      const Distribution& unit_type = units_[static_cast<size_t>(spec.unit_index)].distribution;
      TESSERA_CHECK(unit_type.on(axis).split() == spec.distribution.on(axis).split(),
                    "{} is split over other axes than its unit", spec.name);
    }
    FlatMemory& unit = units[static_cast<size_t>(spec.unit_index)];
    result.pieces.emplace_back(mesh_, spec.distribution, spec.shape, rank_);
    const int64_t own = result.pieces.back().shape().elements();
    result.in_unit.push_back(unit.add_parameter(own, spec.shape.elements()));
    unit.uneven = unit.uneven || has_uneven_matrices(mesh_, spec);
  }
  result.cuts.resize(units.size());
  result.piece_begins.resize(units.size());
  const bool has_copies = has_second_copies();
  for (size_t unit = 0; unit < units.size(); ++unit) {
    result.even_cuts.emplace_back();
    const std::vector<Axis> axes = axes_of_cut(unit);
    if (!axes.empty() && on_stage(unit)) {
      result.even_cuts.back() = {
          .axes = axes,
          .sizes = units[unit].piece_sizes(mesh_.group_ranks(axes), /*whole_matrices=*/false)};
    }
    result.stored.push_back({.weights = even_pieces(result, unit, sharing_.axes.weights),
                             .gradients = even_pieces(result, unit, sharing_.axes.gradients)});
    UnitPieces& stored = result.stored.back();
    if (stored.weights.is_cut() && has_copies) {
      const size_t axis_count = cut_axes_of(unit, sharing_.axes.secondary).size();
      stored.secondary = result.even_cuts.back().outer(mesh_, axis_count);
    }
  }
  for (size_t first = 0; first < units.size(); ++first) {
    const std::vector<Axis> axes = axes_of_cut(first);
    if (axes.empty() || !on_stage(first) || result.cuts[first].is_cut()) continue;
    FlatMemory together;
    std::vector<std::pair<size_t, int64_t>> offsets;  // of the units in `together`
    for (size_t unit = first; unit < units.size(); ++unit) {
      if (cut_together(first, unit)) offsets.emplace_back(unit, together.append_unit(units[unit]));
    }
    const std::vector<int64_t> sizes = together.piece_sizes(
        mesh_.group_ranks(axes), sharing_.whole_matrices && units_[first].matrices);
    for (const auto& [unit, offset] : offsets) {
      FlatPieces& pieces = result.cuts[unit];
      pieces.axes = axes;
      int64_t begin = 0, begin_in_unit = 0;
      for (const int64_t size : sizes) {
        const ElementRun part = intersection({begin, size}, {offset, units[unit].elements});
        pieces.sizes.push_back(part.length);
        result.piece_begins[unit].push_back(begin_in_unit);
        begin += size;
        begin_in_unit += part.length;
      }
    }
  }
  return result;
}

std::vector<int> StateShard::layout_key(int rank) const {
  std::vector<int> key{mesh_.stage(rank)};
  for (const Axis axis : layout_->split_axes) key.push_back(mesh_.coordinate(rank, axis));
  return key;
}

StateShard StateShard::of_rank(int rank) const {
  if (layout_key(rank) != layout_key(rank_)) return {{mesh_, rank}, units_, parameters_, sharing_};
  StateShard other = *this;
  other.rank_ = rank;
  return other;
}

RankShards::RankShards(const StateShard& own) {
  by_layout_.emplace(own.layout_key(own.rank()), &shards_.emplace(own.rank(), own).first->second);
}

const StateShard& RankShards::shard_of(int rank) {
  const auto shard = shards_.find(rank);
  if (shard != shards_.end()) return shard->second;
  const StateShard& first_shard = shards_.begin()->second;
  const std::vector<int> key = first_shard.layout_key(rank);
  const auto known = by_layout_.find(key);
  const StateShard& known_shard = known != by_layout_.end() ? *known->second : first_shard;
  const StateShard& added = shards_.emplace(rank, known_shard.of_rank(rank)).first->second;
  by_layout_.emplace(key, &added);
  return added;
}

std::vector<Axis> StateShard::cut_axes_of(size_t unit, int count) const {
  if (!units_[unit].has_gradients()) return {};
  return cut_axes(mesh_, count, units_[unit].distribution.view());
}

std::vector<Axis> StateShard::axes_of_cut(size_t unit) const {
  std::vector<Axis> axes = cut_axes_of(unit, sharing_.axes.optimizer);
  if (units_[unit].distribution.view() == MeshView::dense) {
    const auto left_out =
        std::min<size_t>(axes.size(), static_cast<size_t>(sharing_.axes.outside_experts));
    axes.erase(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(left_out));
  }
  return axes;
}

bool StateShard::has_second_copies() const {
  if (sharing_.axes.weights == 0) return false;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (mesh_.group_ranks(cut_axes_of(unit, sharing_.axes.secondary)) > 1) return true;
  }
  return false;
}

FlatPieces StateShard::even_pieces(const Layout& layout, size_t unit, int count) const {
  const std::vector<Axis> axes = cut_axes_of(unit, count);
  if (mesh_.group_ranks(axes) == 1 || !on_stage(unit)) return {};
  return layout.even_cuts[unit].outer(mesh_, axes.size());
}

std::vector<Axis> StateShard::axes_of(size_t unit, Kept kind) const {
  if (kind == Kept::weight) return stored(unit).weights.axes;
  if (kind == Kept::gradient) return stored(unit).gradients.axes;
  return axes_of_cut(unit);
}

Distribution StateShard::distribution(size_t parameter, Kept kind) const {
  const ParameterUnit& unit = units_[unit_of(parameter)];
  Distribution result = kind == Kept::gradient ? unit.gradient_distribution : unit.distribution;
  for (const Axis axis : axes_of(unit_of(parameter), kind)) {
    result = result.with(axis, sharded(0, {.kind = PieceKind::flat}));
  }
  return result;
}

std::vector<TensorPiece> StateShard::pieces(size_t parameter, Kept kind) const {
  if (!holds(parameter)) return {};
  const TensorPiece& piece = layout_->pieces[parameter];
  if (!shared_out(parameter, kind)) return {piece};
  std::vector<TensorPiece> pieces;
  for (const auto& box : boxes_of_run(piece.shape(), held(parameter, kind))) {
    pieces.push_back(piece.part(box));
  }
  return pieces;
}

ElementRun StateShard::own_run(size_t unit) const {
  const size_t position = cut(unit).piece_index(mesh_, rank_);
  return {layout_->piece_begins[unit][position], cut(unit).sizes[position]};
}

bool StateShard::cut_together(size_t first, size_t second) const {
  if (!on_stage(first) || !on_stage(second)) return false;
  if (first == second) return true;
  const ParameterUnit& a = units_[first];
  const ParameterUnit& b = units_[second];
  return sharing_.whole_matrices && a.matrices && b.matrices && a.dtype == b.dtype &&
         a.distribution == b.distribution && a.changed_by == b.changed_by;
}

ElementRun StateShard::run_of_unit(size_t unit, Kept kind) const {
  const bool is_state = kind >= Kept::master;
  const FlatPieces& pieces = kind == Kept::weight               ? stored(unit).weights
                             : kind == Kept::gradient           ? stored(unit).gradients
                             : is_rearranged(unit) && !is_state ? even_cut(unit)
                                                                : cut(unit);
  if (&pieces == &cut(unit) && pieces.is_cut()) return own_run(unit);
  if (pieces.is_cut()) return pieces.run_of(mesh_, rank_);
  return {0, units_[unit].elements};
}

ElementRun StateShard::held(size_t parameter, Kept kind) const {
  const size_t unit = unit_of(parameter);
  if (!on_stage(unit)) return {};
  if (!shared_out(parameter, kind)) return {0, layout_->in_unit[parameter].length};
  return held_of(parameter, run_of_unit(unit, kind));
}

ElementRun StateShard::held_of(size_t parameter, const ElementRun& piece_of_unit) const {
  ElementRun held = intersection(piece_of_unit, layout_->in_unit[parameter]);
  held.begin = held.length == 0 ? 0 : held.begin - layout_->in_unit[parameter].begin;
  return held;
}

std::vector<ElementRun> StateShard::held_by_sharers(size_t parameter) const {
  const FlatPieces& pieces = cut(unit_of(parameter));
  if (!pieces.is_cut()) return {held(parameter)};
  const std::vector<int64_t>& begins = layout_->piece_begins[unit_of(parameter)];
  std::vector<ElementRun> held;
  for (size_t i = 0; i < begins.size(); ++i) {
    held.push_back(held_of(parameter, {begins[i], pieces.sizes[i]}));
  }
  return held;
}

std::vector<int> StateShard::sharers(size_t parameter) const {
  const FlatPieces& pieces = cut(unit_of(parameter));
  std::vector<int> ranks = mesh_.group(rank_, pieces.axes);
  std::ranges::sort(ranks, {}, [&](int other) { return pieces.piece_index(mesh_, other); });
  return ranks;
}

}  // namespace tessera
