#pragma once

#include <vector>

#include "ops/moe/grouped_shape.h"

namespace tessera {

/// The faster library for the products of groups of one shape.
struct TunedGrouped {
  GroupedShape shape;
  GroupedLibrary library = GroupedLibrary::cutlass;
  double cutlass_seconds = 0;   ///< of one run, the median; 0 if CUTLASS does not have the product
  double cublaslt_seconds = 0;  ///< the same of cuBLASLt

  bool operator==(const TunedGrouped&) const = default;
};

/// The libraries that a run's table has for products of groups. It lies in the runtime's cache.
struct TunedGroups {
  bool in_use = false;  ///< whether the run has a table
  std::vector<TunedGrouped> products;

  /// The shape's entry, or null if there is none.
  const TunedGrouped* find(const GroupedShape& shape) const;
};

/// Returns the shape's entry for a table. The samples of a library that does not have the product
/// are empty; those of one are not. cuBLASLt is taken if its median is the lower one.
TunedGrouped faster_library(const GroupedShape& shape, const std::vector<double>& cutlass_seconds,
                            const std::vector<double>& cublaslt_seconds);

}  // namespace tessera
