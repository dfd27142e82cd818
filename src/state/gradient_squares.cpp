#include "state/gradient_squares.h"

#include <algorithm>
#include <vector>

#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/update/add_in_order.h"
#include "ops/update/sum_of_squares.h"
#include "state/unit_groups.h"

namespace tessera {
namespace {

/// Sums of squares of some units, and the places of those of each parameter.
struct SquareSums {
  Value sums;
  std::vector<Section> sections;  // by parameter; empty for those of other units
};

class SquaresWriter {
 public:
  SquaresWriter(Builder& builder, std::span<const Value> gradients,
                std::span<const ParameterSpec> parameters, const StateShards& shards)
      : builder_(builder), gradients_(gradients), parameters_(parameters), shards_(shards) {}

  Value write() {
    std::vector<SquareSums> all;
    const auto lies = [&](size_t unit) { return without_sizes(gradients_[unit]); };
    const auto has_gradient = [&](size_t unit) { return bool{gradients_[unit]}; };
    for (const UnitGroup& group : group_by(gradients_.size(), has_gradient, lies)) {
      all.push_back(sums_of(group));
    }
    std::vector<Value> addends;
    const auto sums_lie = [&](size_t i) { return builder_.spec(all[i].sums).distribution; };
    for (const UnitGroup& group : group_by(
             all.size(), [](size_t) { return true; }, sums_lie)) {
      const Value own = added_up(all, group);
      const std::vector<Axis> axes = axes_of_sum(builder_, own, {Placement::invariant});
      addends.push_back(cross(builder_, take_sum(builder_, own, axes), MeshView::dense));
    }
    return addends.size() == 1 ? addends[0] : add(builder_, addends, DType::f64);
  }

 private:
  /// How a gradient lies, whatever the sizes of its pieces. A sum of squares does not depend on
  /// them.
  Distribution without_sizes(Value gradient) const {
    Distribution lies = builder_.spec(gradient).distribution;
    for (const Axis axis : builder_.program().mesh().of_view(lies.view())) {
      TypeOnAxis type = lies.on(axis);
      if (!type.split()) continue;
      type.pieces.sizes.clear();
      lies = lies.with(axis, type);
    }
    return lies;
  }

  /// The sums of a group of units. They are whole on all ranks that a unit is cut over.
  SquareSums sums_of(const UnitGroup& group) {
    const int rank = builder_.program().rank();
    SquareSums result;
    std::vector<SquaresSection> own;
    int64_t sums = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const ParameterSpec& spec = parameters_[i];
      const auto unit = static_cast<size_t>(spec.unit_index);
      const int place = group.places[unit];
      result.sections.push_back({0, sums, sums});
      if (place < 0) continue;
      const ElementRun held = shards_.held(i, rank);
      const int64_t first = spec.unit_offset + held.place - shards_.first_of_unit(unit, rank);
      TESSERA_CHECK(held.place % kSquaresElements == 0, "{} is cut at element {}", spec.name,
                    held.place);
      if (held.length > 0) {
        own.push_back({{place, first, first + held.length}, sums + held.place / kSquaresElements});
      }
      sums += squares_sums(spec.piece_shape.elements());
      result.sections.back().end = sums;
    }
    std::vector<Value> values;
    for (const size_t unit : group.units) values.push_back(gradients_[unit]);
    result.sums = taken(sum_of_squares(builder_, values, std::move(own), sums),
                        shards_.of_unit(group.units.front(), rank).axes);
    return result;
  }

  /// Takes the sum over the axes of a cut, of which one addend alone is not zero, and over axes of
  /// one rank. What is then the same on all ranks passes to the dense view.
  Value taken(Value sums, std::span<const Axis> cut) {
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

  /// The sum of what some groups have, in the order of the parameters.
  Value added_up(std::span<const SquareSums> all, const UnitGroup& group) {
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
  const StateShards& shards_;
};

}  // namespace

Value gradient_squares(Builder& builder, std::span<const Value> gradients,
                       std::span<const ParameterSpec> parameters, const StateShards& shards) {
  return SquaresWriter(builder, gradients, parameters, shards).write();
}

}  // namespace tessera
