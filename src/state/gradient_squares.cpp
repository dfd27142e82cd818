#include "state/gradient_squares.h"

#include <algorithm>
#include <vector>

#include "ops/collective/convert.h"
#include "ops/collective/stages.h"
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

/// Writes the sum of squares in four steps: the sums of each group of units of one distribution;
/// these of all pipeline stages; then their sum over all groups whose sums have one distribution;
/// then the sum over the ranks. The groups are of the units of all stages, so that all stages have
/// the same, and a stage has zeros for the parameters of others.
class SquaresWriter {
 public:
  SquaresWriter(Builder& builder, std::span<const Value> gradients,
                std::span<const ParameterUnit> units, std::span<const ParameterSpec> parameters,
                const StateShard& shard)
      : builder_(builder),
        gradients_(gradients),
        units_(units),
        parameters_(parameters),
        shard_(shard),
        types_(units.size()) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto unit = static_cast<size_t>(parameters[i].unit_index);
      types_[unit] = without_sizes(shard.distribution(i, Kept::summed_gradient));
      if (!gradients[unit]) continue;
      const Distribution found = without_sizes(builder.spec(gradients[unit]).distribution);
      TESSERA_CHECK(found == types_[unit], "the gradient of {} is {}; expected {}",
                    units[unit].name, found.text(mesh()), types_[unit].text(mesh()));
    }
  }

  Value write() {
    std::vector<SquareSums> groups;
    const auto gradient_type = [&](size_t unit) { return types_[unit]; };
    const auto has_gradient = [&](size_t unit) { return units_[unit].has_gradients(); };
    for (const UnitGroup& group : group_by(units_.size(), has_gradient, gradient_type)) {
      groups.push_back(sums_of_group(group));
    }
    std::vector<Value> sums;
    for (const SquareSums& group : groups) sums.push_back(group.sums);
    sum_over_stages(builder_, "gradient_squares", sums);
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
  const Mesh& mesh() const { return builder_.program().mesh(); }

  /// Returns the distribution of a gradient without the sizes of its pieces, so that gradients with
  /// pieces of different sizes share a group: their sums of squares have the same distribution.
  Distribution without_sizes(Distribution distribution) const {
    for (const Axis axis : mesh().axes_of(distribution.view())) {
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
    std::vector<int> indices(units_.size(), -1);  // by unit: the index of its gradient in `values`
    std::vector<Value> values;
    for (const size_t unit : group.units) {
      if (!gradients_[unit]) continue;
      indices[unit] = static_cast<int>(values.size());
      values.push_back(gradients_[unit]);
    }
    std::vector<SquaresSection> sections;
    int64_t count = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const ParameterSpec& spec = parameters_[i];
      const auto unit = static_cast<size_t>(spec.unit_index);
      result.sections.push_back({0, count, count});
      if (group.indices[unit] < 0) continue;
      const ElementRun held = shard_.held(i, Kept::summed_gradient);
      const int64_t first = shard_.offset_in(i, Kept::summed_gradient) + held.begin;
      TESSERA_CHECK(held.begin % kSquaresElements == 0, "{} is cut at element {}", spec.name,
                    held.begin);
      if (held.length > 0 && shard_.on_first_stage(i, shard_.rank())) {
        sections.push_back(
            {{indices[unit], first, first + held.length}, count + held.begin / kSquaresElements});
      }
      count += squares_sums(spec.piece_shape.elements());
      result.sections.back().end = count;
    }
    const Value own = values.empty() ? no_sums(types_[group.units.front()], count)
                                     : sum_of_squares(builder_, values, std::move(sections), count);
    result.sums = summed_over_cut(own, shard_.axes_of_cut(group.units.front()));
    return result;
  }

  /// Returns the sums of a stage that has no units of a group: zeros, in the distribution that the
  /// other stages' sums have.
  Value no_sums(const Distribution& gradient, int64_t count) {
    Distribution distribution = gradient;
    for (const Axis axis : mesh().axes_of(gradient.view())) {
      if (gradient.on(axis).split()) distribution = distribution.with(axis, partial());
    }
    return zeros(builder_, {{count}, DType::f64, distribution});
  }

  /// Adds up sums over the axes of a cut, on which at most one addend is not zero, and over axes of
  /// one rank. If no axis is left to sum over, moves the result to the dense view.
  Value summed_over_cut(Value sums, std::span<const Axis> cut) {
    std::vector<Axis> axes = axes_of_sum(builder_, sums, {Placement::invariant});
    const size_t axis_count = axes.size();
    std::erase_if(axes, [&](Axis axis) {
      return mesh().size(axis) > 1 && std::ranges::find(cut, axis) == cut.end();
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
  std::span<const ParameterUnit> units_;
  std::span<const ParameterSpec> parameters_;
  const StateShard& shard_;
  std::vector<Distribution> types_;  // by unit, of the summed gradient, without sizes
};

}  // namespace

Value gradient_squares(Builder& builder, std::span<const Value> gradients,
                       std::span<const ParameterUnit> units,
                       std::span<const ParameterSpec> parameters, const StateShard& shard) {
  return SquaresWriter(builder, gradients, units, parameters, shard).write();
}

}  // namespace tessera
