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

// The choice between the libraries for grouped products (one matrix product per expert). A run's
// table of tuned products names the faster library for a shape. A library is called missing if it
// is not in this build or on this machine, or lacks the shape.

/// A library for grouped products.
struct GroupedCandidate {
  GroupedLibrary library = GroupedLibrary::cutlass;
  /// Returns the reason why the library cannot be used here, or an empty string if it can.
  std::function<std::string()> why_missing;
};

/// A chosen library, and a remark for the log. The remark is empty if a table decided, or if there
/// is no table and the first candidate was chosen.
struct GroupedChoice {
  GroupedLibrary library = GroupedLibrary::cutlass;
  std::string remark;
};

/// Chooses the library that the table names for a shape. Without such an entry, or if that library
/// is missing, chooses the first candidate that is not missing. Candidates after the chosen one are
/// not asked. The remark says that the table has no entry for the shape, or else why the libraries
/// that were asked first are missing. If all candidates are missing, throws Error with the
/// operation and all reasons.
GroupedChoice choose_grouped(std::string_view operation, const GroupedShape& shape,
                             const TunedGroups& table,
                             std::span<const GroupedCandidate> candidates);

/// The library that was chosen for each shape that a runtime has multiplied. It is in the runtime's
/// cache and is not thread-safe.
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
