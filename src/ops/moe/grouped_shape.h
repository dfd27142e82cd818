#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/worded.h"
#include "tensor/dtype.h"

namespace tessera {

/// The three products of a grouped linear map whose weights are [groups, out, in]. Group e has the
/// rows from offsets[e] to offsets[e + 1], which only the device knows.
enum class GroupedKind {
  forward,          ///< [rows, in] · weightᵀ -> [rows, out]
  input_gradient,   ///< [rows, out] · weight -> [rows, in]
  weight_gradient,  ///< [rows, out]ᵀ · [rows, in], added to [groups, out, in] in f32
};

/// The shape of a grouped product on an accelerator.
struct GroupedShape {
  GroupedKind kind = GroupedKind::forward;
  int64_t groups = 0;
  int64_t rows = 0;  ///< of all groups, at most
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
inline constexpr std::array<std::string_view, 3> kWords<GroupedKind>{"forward", "input_gradient",
                                                                     "weight_gradient"};

/// The libraries for grouped products in bf16 on the device cuda.
enum class GroupedLibrary { cutlass, cublaslt };
template <>
inline constexpr std::array<std::string_view, 2> kWords<GroupedLibrary>{"CUTLASS", "cuBLASLt"};

}  // namespace tessera
