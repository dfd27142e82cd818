#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "model/parameter.h"

namespace tessera {

/// Units, or other things, that an operation takes together because they lie alike.
struct UnitGroup {
  std::vector<size_t> units;  ///< indices
  std::vector<int> places;    ///< by unit: its place in `units`, or -1
};

/// Those of `count` things for which `taken` is true, by a property of theirs, in the order in
/// which the properties appear.
template <typename Taken, typename Property>
std::vector<UnitGroup> group_by(size_t count, Taken&& taken, Property&& property) {
  std::vector<decltype(property(size_t{}))> known;
  std::vector<UnitGroup> groups;
  for (size_t i = 0; i < count; ++i) {
    if (!taken(i)) continue;
    const auto own = property(i);
    const auto found = std::ranges::find(known, own);
    const auto place = static_cast<size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(own);
      groups.push_back({.units = {}, .places = std::vector<int>(count, -1)});
    }
    UnitGroup& group = groups[place];
    group.places[i] = static_cast<int>(group.units.size());
    group.units.push_back(i);
  }
  return groups;
}

/// The units that an optimizer changes, by a property of theirs.
template <typename Property>
std::vector<UnitGroup> group_units(std::span<const ParameterUnit> units, Property&& property) {
  return group_by(
      units.size(), [&](size_t unit) { return units[unit].has_gradients(); }, property);
}

}  // namespace tessera
