#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/worded.h"
#include "tensor/dtype.h"

namespace tessera {

// Grouped products on an accelerator: their shapes, and a table of the faster library for each. A
// grouped product is one matrix product for each group, which is the rows of one expert.

/// The three products of a grouped linear map, which is one linear map for each group. The weights
/// are [groups, out, in]. Group e has the rows from offsets[e] to offsets[e + 1], which only the
/// device knows.
enum class GroupedKind {
  forward,          ///< [rows, in] · weightᵀ -> [rows, out]
  input_gradient,   ///< [rows, out] · weight -> [rows, in]
  weight_gradient,  ///< [rows, out]ᵀ · [rows, in], added to [groups, out, in] in f32
};

/// The shape of a grouped product on an accelerator.
struct GroupedShape {
  GroupedKind kind = GroupedKind::forward;
  int64_t groups = 0;
  int64_t rows = 0;  ///< the largest number of rows of all groups together
  int64_t in = 0;
  int64_t out = 0;
  DType input = DType::f32;
  DType output = DType::f32;  ///< f32 for a weight gradient
  bool adds = false;          ///< an input gradient is added to GroupedOperands::sum

  /// Returns the floating-point operations if all rows are used.
  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  }
  auto operator<=>(const GroupedShape&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Returns "products of 64 groups of up to 32768 rows in all, weights [1024, 2048], bf16 into f32".
std::string describe(const GroupedShape& shape);

template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<GroupedKind>{"forward", "input_gradient",
                                                                       "weight_gradient"};

/// The libraries for grouped products in bf16 on the device cuda.
enum class GroupedLibrary { cutlass, cublaslt };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<GroupedLibrary>{"CUTLASS", "cuBLASLt"};

/// The faster library for the grouped products of one shape.
struct TunedGrouped {
  GroupedShape shape;
  GroupedLibrary library = GroupedLibrary::cutlass;
  double cutlass_seconds = 0;   ///< the median of one run; 0 if CUTLASS lacks the product
  double cublaslt_seconds = 0;  ///< the same for cuBLASLt

  bool operator==(const TunedGrouped&) const = default;
};

/// The libraries that a run's table names for grouped products. It is in the runtime's cache.
struct TunedGroups {
  bool in_use = false;  ///< true if the run has a table
  std::vector<TunedGrouped> products;

  /// Returns the shape's entry, or null if there is none.
  const TunedGrouped* find(const GroupedShape& shape) const;
};

/// Returns the shape's entry for a table, given the samples of each library. At most one library
/// has none. Chooses CUTLASS unless it has none, or cuBLASLt has some and their median is lower.
TunedGrouped faster_library(const GroupedShape& shape, const std::vector<double>& cutlass_seconds,
                            const std::vector<double>& cublaslt_seconds);

}  // namespace tessera
