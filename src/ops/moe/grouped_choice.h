#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/moe/tuned_groups.h"

namespace tessera {

/// A library of products of groups, and what says why it cannot be taken here: no words if it can.
struct GroupedCandidate {
  GroupedLibrary library = GroupedLibrary::cutlass;
  std::function<std::string()> missing;
};

/// A library that was chosen, and what is to be logged of that: often nothing.
struct GroupedChoice {
  GroupedLibrary library = GroupedLibrary::cutlass;
  std::string remark;
};

/// Chooses the library that the table has for a shape. Where there is no table, or it lacks the
/// shape, or its library is missing, the first candidate that is not missing is chosen. The remark
/// says where a table does not decide, and what is missing of those that come first. Later
/// candidates are not asked. Throws Error, which names the operation and all reasons, if all are
/// missing.
GroupedChoice choose_grouped(std::string_view operation, const GroupedShape& shape,
                             const TunedGroups& table,
                             std::span<const GroupedCandidate> candidates);

/// The library of each shape that a runtime has multiplied. It lies in the runtime's cache.
class GroupedChoices {
 public:
  /// The library that was kept for a shape, or null.
  const GroupedLibrary* find(const GroupedShape& shape) const;
  /// Keeps a shape's choice, and logs its remark unless it was logged before.
  GroupedLibrary keep(const GroupedShape& shape, const GroupedChoice& choice);
  /// The shapes that have a choice, in one order.
  std::vector<GroupedShape> shapes() const;

 private:
  std::map<GroupedShape, GroupedLibrary> of_shape_;
  std::set<std::string> logged_;
};

}  // namespace tessera
