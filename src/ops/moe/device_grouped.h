#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/gemm/device_gemm.h"
#include "ops/moe/tuned_groups.h"
#include "program/operation.h"

namespace tessera {

// Grouped products on accelerators: one matrix product for each group (expert), over its rows.

/// The operands of the product of a GroupedShape, in the accelerator's memory.
struct GroupedOperands {
  const void* rows = nullptr;        ///< the first operand: [rows, in] or [rows, out]
  const void* second = nullptr;      ///< the weights, or for their gradient [rows, in]
  const int32_t* offsets = nullptr;  ///< [groups + 1]
  void* result = nullptr;
  /// If the shape `adds`: f32 of the result's shape, to which the input gradient is added before it
  /// is rounded. It may be the result itself.
  const float* sum = nullptr;
};

/// Returns whether a device computes these products itself. In place of the emulated device, the
/// processor's kernels compute those in bf16. On hip, require_device_grouped() refuses bf16.
bool has_device_grouped(Device device, DType input);

/// Returns the scratch bytes of a product. They depend on the arguments alone. Throws Error, which
/// names the operation, if the target cannot multiply such matrices: in bf16 on the device cuda
/// both dims of a weight must be multiples of 8.
int64_t device_grouped_workspace_bytes(const Target& target, std::string_view operation,
                                       const GroupedShape& shape);

/// Throws Error if this build or the runtime's device lacks what these products need, or if no
/// available library can compute them. Products without rows or groups need nothing.
void require_device_grouped(Runtime& runtime, std::string_view operation,
                            const GroupedShape& shape);

/// Puts products into an execution's stream. `workspace` has the bytes that
/// device_grouped_workspace_bytes() plans. Groups without rows leave a weight gradient as it is.
/// Rows past the last offset are not written. Throws Error as require_device_grouped() does.
///
/// For bf16 on the device cuda the runtime's table of tuned products names the library for each
/// shape. If it names none or that library is missing, CUTLASS multiplies, or else cuBLASLt. The
/// log says so if the run has a table, or if cuBLASLt replaces CUTLASS (grouped_choice.h).
void device_grouped(const Execution& execution, std::string_view operation,
                    const GroupedShape& shape, const GroupedOperands& operands,
                    std::byte* workspace);

/// Returns the grouped products in bf16 that the runtime has put into streams of the device cuda,
/// in a fixed order; none on other devices.
std::vector<GroupedShape> device_grouped_shapes(Runtime& runtime);
/// Measures the libraries that can compute such a product on the device cuda, on random numbers,
/// with nearly equal groups. Throws Error if no library can, and InternalError on other devices.
TunedGrouped tune_device_grouped(Runtime& runtime, const GroupedShape& shape,
                                 const TuningBudget& budget);

}  // namespace tessera
