#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "model/parameter.h"

namespace tessera {

/// Units, or items of another list, that share a property, so that one operation can take them all.
struct UnitGroup {
  std::vector<size_t> units;  ///< indices in the list of all items
  std::vector<int> indices;   ///< by item of that list: its index in `units`, or -1
};

/// Groups the indices below `count` for which `belongs(index)` is true, by `property(index)`.
/// Groups are in the order in which the property's values first appear.
template <typename Belongs, typename Property>
std::vector<UnitGroup> group_by(size_t count, Belongs&& belongs, Property&& property) {
  std::vector<decltype(property(size_t{}))> values;
  std::vector<UnitGroup> groups;
  for (size_t i = 0; i < count; ++i) {
    if (!belongs(i)) continue;
    const auto value = property(i);
    const auto found = std::ranges::find(values, value);
    const auto index = static_cast<size_t>(found - values.begin());
    if (found == values.end()) {
      values.push_back(value);
      groups.push_back({.units = {}, .indices = std::vector<int>(count, -1)});
    }
    UnitGroup& group = groups[index];
    group.indices[i] = static_cast<int>(group.units.size());
    group.units.push_back(i);
  }
  return groups;
}

/// Returns whether a pipeline stage updates a unit: it has it, and an optimizer changes it.
inline bool is_updated(const ParameterUnit& unit, int stage) {
  return unit.has_gradients() && unit.on_stage(stage);
}

/// Groups the units that a stage updates, by `property(index of the unit)`.
template <typename Property>
std::vector<UnitGroup> group_units(std::span<const ParameterUnit> units, int stage,
                                   Property&& property) {
  return group_by(
      units.size(), [&](size_t unit) { return is_updated(units[unit], stage); }, property);
}

}  // namespace tessera
