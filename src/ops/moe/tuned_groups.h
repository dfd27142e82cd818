#pragma once

#include <vector>

#include "ops/moe/grouped_shape.h"

namespace tessera {

/// The faster library for the grouped products of one shape.
struct TunedGrouped {
  GroupedShape shape;
  GroupedLibrary library = GroupedLibrary::cutlass;
  double cutlass_seconds = 0;   ///< of one run, the median; 0 if CUTLASS does not have the product
  double cublaslt_seconds = 0;  ///< the median of cuBLASLt; 0 if it does not have the product

  bool operator==(const TunedGrouped&) const = default;
};

/// The libraries that a run's table names for grouped products. It is in the runtime's cache.
struct TunedGroups {
  bool in_use = false;  ///< true if the run has a table
  std::vector<TunedGrouped> products;

  /// Returns the shape's entry, or null if there is none.
  const TunedGrouped* find(const GroupedShape& shape) const;
};

/// Returns the shape's entry for a table. A library that does not have the product has no samples;
/// at least one library has samples. cuBLASLt is chosen if its median is the lower one.
TunedGrouped faster_library(const GroupedShape& shape, const std::vector<double>& cutlass_seconds,
                            const std::vector<double>& cublaslt_seconds);

}  // namespace tessera
