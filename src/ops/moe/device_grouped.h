#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/gemm/device_gemm.h"
#include "ops/moe/tuned_groups.h"
#include "program/operation.h"

namespace tessera {

/// The operands of GroupedShape, in the accelerator's memory.
struct GroupedOperands {
  const void* rows = nullptr;        ///< the first operand: [rows, in] or [rows, out]
  const void* other = nullptr;       ///< the weights, or for their gradient [rows, in]
  const int32_t* offsets = nullptr;  ///< [groups + 1]
  void* result = nullptr;
  /// f32 of the result's shape that an input gradient is added to before it is rounded, if the
  /// shape `adds`. It may be the result itself.
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

/// Throws Error if this build or the runtime's device lacks what these products need, or if no
/// library that is there has them.
void require_device_grouped(Runtime& runtime, std::string_view operation,
                            const GroupedShape& shape);

/// Puts products into an execution's stream. `workspace` has the bytes that
/// device_grouped_workspace_bytes() plans. Groups without rows leave a weight gradient as it is;
/// rows past the last offset are not written. bf16 on the device cuda is multiplied by the library
/// that the runtime's table of tuned products names for the shape. Without a table, or where that
/// library is missing, CUTLASS multiplies, or else cuBLASLt; what the table does not decide and
/// what replaces CUTLASS is logged once. Throws Error as require_device_grouped() does.
void device_grouped(const Execution& execution, std::string_view operation,
                    const GroupedShape& shape, const GroupedOperands& operands,
                    std::byte* workspace);

/// The products of groups in bf16 that the runtime has put into streams of the device cuda, in one
/// order; none on other devices.
std::vector<GroupedShape> device_grouped_shapes(Runtime& runtime);
/// Measures the libraries that have such a product on the runtime's device, on random numbers, with
/// as many rows in each group. Throws Error if none has it.
TunedGrouped tune_device_grouped(Runtime& runtime, const GroupedShape& shape,
                                 const TuningBudget& budget);

}  // namespace tessera
