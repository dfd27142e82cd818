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
  std::vector<Section> sections;  // by parameter; empty for parameters of other units
};

/// Writes the sum of squares in three steps: the sums of each group of units of one distribution,
/// then their sum over all groups whose sums have one distribution, then the sum over the ranks.
class SquaresWriter {
 public:
  SquaresWriter(Builder& builder, std::span<const Value> gradients,
                std::span<const ParameterSpec> parameters, const StateShard& shard)
      : builder_(builder), gradients_(gradients), parameters_(parameters), shard_(shard) {}

  Value write() {
    std::vector<SquareSums> groups;
    const auto gradient_type = [&](size_t unit) { return without_sizes(gradients_[unit]); };
    const auto has_gradient = [&](size_t unit) { return bool{gradients_[unit]}; };
    for (const UnitGroup& group : group_by(gradients_.size(), has_gradient, gradient_type)) {
      groups.push_back(sums_of_group(group));
    }
    std::vector<Value> addends;
    const auto sums_type = [&](size_t index) {
      return builder_.spec(groups[index].sums).distribution;
    };
    for (const UnitGroup& group : group_by(
             groups.size(), [](size_t) { return true; }, sums_type)) {
      const Value own_sum = sum_in_order(groups, group);
      const std::vector<Axis> axes = axes_of_sum(builder_, own_sum, {Placement::invariant});
      addends.push_back(cross(builder_, take_sum(builder_, own_sum, axes), MeshView::dense));
    }
    return addends.size() == 1 ? addends[0] : add(builder_, addends, DType::f64);
  }

 private:
  /// Returns the distribution of a gradient without the sizes of its pieces, so that gradients with
  /// pieces of different sizes share a group: their sums of squares have the same distribution.
  Distribution without_sizes(Value gradient) const {
    Distribution distribution = builder_.spec(gradient).distribution;
    for (const Axis axis : builder_.program().mesh().axes_of(distribution.view())) {
      TypeOnAxis type = distribution.on(axis);
      if (!type.split()) continue;
      type.pieces.sizes.clear();
      distribution = distribution.with(axis, type);
    }
    return distribution;
  }

  /// Returns the sums of a group of units. If units are cut over ranks, each rank gets all sums.
  SquareSums sums_of_group(const UnitGroup& group) {
    SquareSums result;
    std::vector<SquaresSection> sections;
    int64_t count = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const ParameterSpec& spec = parameters_[i];
      const auto unit = static_cast<size_t>(spec.unit_index);
      const int index = group.indices[unit];
      result.sections.push_back({0, count, count});
      if (index < 0) continue;
      const ElementRun held = shard_.held(i);
      const int64_t first = shard_.offset_in_states(i) + held.begin;
      TESSERA_CHECK(held.begin % kSquaresElements == 0, "{} is cut at element {}", spec.name,
                    held.begin);
      if (held.length > 0) {
        sections.push_back(
            {{index, first, first + held.length}, count + held.begin / kSquaresElements});
      }
      count += squares_sums(spec.piece_shape.elements());
      result.sections.back().end = count;
    }
    std::vector<Value> values;
    for (const size_t unit : group.units) values.push_back(gradients_[unit]);
    result.sums = summed_over_cut(sum_of_squares(builder_, values, std::move(sections), count),
                                  shard_.cut(group.units.front()).axes);
    return result;
  }

  /// Adds up sums over the axes of a cut, on which at most one addend is not zero, and over axes of
  /// one rank. If no axis is left to sum over, moves the result to the dense view.
  Value summed_over_cut(Value sums, std::span<const Axis> cut) {
    const Mesh& mesh = builder_.program().mesh();
    std::vector<Axis> axes = axes_of_sum(builder_, sums, {Placement::invariant});
    const size_t axis_count = axes.size();
    std::erase_if(axes, [&](Axis axis) {
      return mesh.size(axis) > 1 && std::ranges::find(cut, axis) == cut.end();
    });
    const bool is_complete = axes.size() == axis_count;
    const Value result = take_sum(builder_, sums, axes);
    return is_complete ? cross(builder_, result, MeshView::dense) : result;
  }

  /// Returns the sum over the groups in `group.units`, added up in the order of the parameters.
  Value sum_in_order(std::span<const SquareSums> groups, const UnitGroup& group) {
    std::vector<Section> sections;
    for (size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
      for (size_t i = 0; i < group.units.size(); ++i) {
        Section section = groups[group.units[i]].sections[parameter];
        if (section.begin == section.end) continue;
        section.unit = static_cast<int>(i);
        sections.push_back(section);
      }
    }
    std::vector<Value> sums;
    for (const size_t i : group.units) sums.push_back(groups[i].sums);
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
