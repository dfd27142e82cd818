#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "program/operation.h"

namespace tessera {

/// The three products of a grouped linear map whose weights are [groups, out, in]. Group e has the
/// rows from offsets[e] to offsets[e + 1], which only the device knows.
enum class GroupedKind {
  forward,          ///< [rows, in] · weightᵀ -> [rows, out]
  input_gradient,   ///< [rows, out] · weight -> [rows, in]
  weight_gradient,  ///< [rows, out]ᵀ · [rows, in], added to [groups, out, in] in f32
};

/// Products of groups on an accelerator.
struct GroupedShape {
  GroupedKind kind = GroupedKind::forward;
  int64_t groups = 0;
  int64_t rows = 0;  ///< of all groups, at most
  int64_t in = 0;
  int64_t out = 0;
  DType input = DType::f32;
  DType output = DType::f32;  ///< f32 for a weight gradient
};

/// The operands of GroupedShape, in the accelerator's memory.
struct GroupedOperands {
  const void* rows = nullptr;        ///< the first operand: [rows, in] or [rows, out]
  const void* other = nullptr;       ///< the weights, or for their gradient [rows, in]
  const int32_t* offsets = nullptr;  ///< [groups + 1]
  void* result = nullptr;
  /// f32 of the result's shape that an input gradient is added to before it is rounded, or null. It
  /// may be the result itself.
  const float* sum = nullptr;
};

/// Whether an accelerator has kernels for these products. Otherwise (bf16 on the emulated device)
/// the processor's run there.
bool has_device_grouped(Device device, DType input);

/// Returns the scratch bytes of a product, a pure function. Throws Error, which names the
/// operation, if the target cannot multiply such matrices: in bf16 on the device cuda both sides of
/// a weight are multiples of 8.
int64_t device_grouped_workspace_bytes(const Target& target, std::string_view operation,
                                       const GroupedShape& shape);

/// Puts products into an execution's stream. `workspace` has the bytes that
/// device_grouped_workspace_bytes() plans. Groups without rows leave a weight gradient as it is;
/// rows past the last offset are not written. Throws Error if this build or this device lacks what
/// is needed.
void device_grouped(const Execution& execution, std::string_view operation,
                    const GroupedShape& shape, const GroupedOperands& operands,
                    std::byte* workspace);

/// Sets the rows [rows, width] past the last of `offsets` [groups + 1] to zero.
void clear_rest(const Execution& execution, const Tensor& rows, const Tensor& offsets);

}  // namespace tessera
