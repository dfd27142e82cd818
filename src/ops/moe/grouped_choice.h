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

// The choice between the libraries for products of groups, one matrix product per expert. A run's
// table of tuned products names the faster library for a shape. A library may be missing: it is not
// in this build or on this machine, or it lacks the shape.

/// A library for grouped products.
struct GroupedCandidate {
  GroupedLibrary library = GroupedLibrary::cutlass;
  /// Returns why the library cannot be used here, or an empty string if it can.
  std::function<std::string()> missing;
};

/// A library that was chosen, and a remark to log about the choice, which is often empty.
struct GroupedChoice {
  GroupedLibrary library = GroupedLibrary::cutlass;
  std::string remark;
};

/// Chooses the library that the table names for a shape. If there is no table, or it lacks the
/// shape, or its library is missing, the first candidate that is not missing is chosen. The remark
/// says if a table did not decide, and why candidates before the chosen one are missing. Candidates
/// after it are not asked. Throws Error, which names the operation and all reasons, if all are
/// missing.
GroupedChoice choose_grouped(std::string_view operation, const GroupedShape& shape,
                             const TunedGroups& table,
                             std::span<const GroupedCandidate> candidates);

/// The library that was chosen for each shape that a runtime has multiplied. It is in the runtime's
/// cache.
class GroupedChoices {
 public:
  /// Returns the library that was kept for a shape, or null.
  const GroupedLibrary* find(const GroupedShape& shape) const;
  /// Keeps a shape's choice and returns its library. Logs its remark unless it was logged before.
  GroupedLibrary keep(const GroupedShape& shape, const GroupedChoice& choice);
  /// Returns the shapes that have a choice, in a fixed order.
  std::vector<GroupedShape> shapes() const;

 private:
  std::map<GroupedShape, GroupedLibrary> libraries_;
  std::set<std::string> logged_;
};

}  // namespace tessera
