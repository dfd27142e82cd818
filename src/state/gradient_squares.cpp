#include "state/gradient_squares.h"

#include <algorithm>
#include <vector>

#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/update/sum_of_squares.h"
#include "state/unit_groups.h"

namespace tessera {
namespace {

/// The sums of squares of a group of units, and the section of these sums for each parameter.
struct SquareSums {
  Value sums;
  std::vector<Section> sections;  // by parameter; empty for those of other units
};

/// Writes the sum of squares in three steps: within each group of units of one distribution, over
/// all groups whose sums have one distribution, and over the ranks.
class SquaresWriter {
 public:
  SquaresWriter(Builder& builder, std::span<const Value> gradients,
                std::span<const ParameterSpec> parameters, const StateShard& shard)
      : builder_(builder), gradients_(gradients), parameters_(parameters), shard_(shard) {}

  Value write() {
    std::vector<SquareSums> all;
    const auto distribution = [&](size_t unit) { return without_sizes(gradients_[unit]); };
    const auto has_gradient = [&](size_t unit) { return bool{gradients_[unit]}; };
    for (const UnitGroup& group : group_by(gradients_.size(), has_gradient, distribution)) {
      all.push_back(sums_of(group));
    }
    std::vector<Value> addends;
    const auto sums_distribution = [&](size_t i) {
      return builder_.spec(all[i].sums).distribution;
    };
    for (const UnitGroup& group : group_by(
             all.size(), [](size_t) { return true; }, sums_distribution)) {
      const Value own = sum_in_order(all, group);
      const std::vector<Axis> axes = axes_of_sum(builder_, own, {Placement::invariant});
      addends.push_back(cross(builder_, take_sum(builder_, own, axes), MeshView::dense));
    }
    return addends.size() == 1 ? addends[0] : add(builder_, addends, DType::f64);
  }

 private:
  /// Returns the distribution of a gradient without the sizes of its pieces, so that gradients with
  /// pieces of different sizes share a group: their sums of squares have the same distribution.
  Distribution without_sizes(Value gradient) const {
    Distribution distribution = builder_.spec(gradient).distribution;
    for (const Axis axis : builder_.program().mesh().of_view(distribution.view())) {
      TypeOnAxis type = distribution.on(axis);
      if (!type.split()) continue;
      type.pieces.sizes.clear();
      distribution = distribution.with(axis, type);
    }
    return distribution;
  }

  /// Returns the sums of a group of units. The ranks over which the units are cut all get all sums.
  SquareSums sums_of(const UnitGroup& group) {
    SquareSums result;
    std::vector<SquaresSection> own;
    int64_t sums = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const ParameterSpec& spec = parameters_[i];
      const auto unit = static_cast<size_t>(spec.unit_index);
      const int index = group.indices[unit];
      result.sections.push_back({0, sums, sums});
      if (index < 0) continue;
      const ElementRun held = shard_.held(i);
      const int64_t first = shard_.offset_in_states(i) + held.begin;
      TESSERA_CHECK(held.begin % kSquaresElements == 0, "{} is cut at element {}", spec.name,
                    held.begin);
      if (held.length > 0) {
        own.push_back({{index, first, first + held.length}, sums + held.begin / kSquaresElements});
      }
      sums += squares_sums(spec.piece_shape.elements());
      result.sections.back().end = sums;
    }
    std::vector<Value> values;
    for (const size_t unit : group.units) values.push_back(gradients_[unit]);
    result.sums = summed_over_cut(sum_of_squares(builder_, values, std::move(own), sums),
                                  shard_.cut(group.units.front()).axes);
    return result;
  }

  /// Adds up sums over the axes of a cut, where at most one addend is not zero, and over axes of
  /// one rank. If no axis is left to sum over, the result passes to the dense view.
  Value summed_over_cut(Value sums, std::span<const Axis> cut) {
    const Mesh& mesh = builder_.program().mesh();
    std::vector<Axis> axes = axes_of_sum(builder_, sums, {Placement::invariant});
    const size_t all = axes.size();
    std::erase_if(axes, [&](Axis axis) {
      return mesh.size(axis) > 1 && std::ranges::find(cut, axis) == cut.end();
    });
    const bool whole = axes.size() == all;
    const Value result = take_sum(builder_, sums, axes);
    return whole ? cross(builder_, result, MeshView::dense) : result;
  }

  /// Returns the sum over the groups in `group.units`, added up in the order of the parameters.
  Value sum_in_order(std::span<const SquareSums> all, const UnitGroup& group) {
    std::vector<Section> sections;
    for (size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
      for (size_t i = 0; i < group.units.size(); ++i) {
        Section section = all[group.units[i]].sections[parameter];
        if (section.begin == section.end) continue;
        section.unit = static_cast<int>(i);
        sections.push_back(section);
      }
    }
    std::vector<Value> sums;
    for (const size_t i : group.units) sums.push_back(all[i].sums);
    return add_in_order(builder_, sums, std::move(sections));
  }

  Builder& builder_;
  std::span<const Value> gradients_;
  std::span<const ParameterSpec> parameters_;
  const StateShard& shard_;
};

}  // namespace

Value gradient_squares(Builder& builder, std::span<const Value> gradients,
                       std::span<const ParameterSpec> parameters, const StateShard& shard) {
  return SquaresWriter(builder, gradients, parameters, shard).write();
}

}  // namespace tessera
