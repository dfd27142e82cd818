#pragma once

#include <vector>

#include "ops/moe/device_grouped.h"
#include "ops/moe/grouped_choice.h"

namespace tessera {

// Grouped products (one matrix product per expert) in bf16 on the device cuda. Two libraries
// have kernels for them: CUTLASS and cuBLASLt. The first run of a shape chooses one of them
// (ops/moe/grouped_choice.h), and the runtime keeps the choice, so equal operands give equal bits.

// Each does what its counterpart in device_grouped.h does (device_grouped() for cuda_grouped()).
void require_cuda_grouped(Runtime& runtime, std::string_view operation, const GroupedShape& shape);
void cuda_grouped(const Execution& execution, std::string_view operation, const GroupedShape& shape,
                  const GroupedOperands& operands, std::byte* workspace);
TunedGrouped tune_cuda_grouped(Runtime& runtime, const GroupedShape& shape,
                               const TuningBudget& budget);

/// Returns the reason why CUTLASS's grouped products cannot run here: this build lacks CUTLASS's
/// headers, or the device is not Hopper. Returns an empty string if they can.
std::string why_cutlass_is_missing(Runtime& runtime);
/// Puts grouped products in bf16 into a stream of the device cuda (see device_grouped()). Throws
/// Error if CUTLASS refuses them, and InternalError if this build lacks CUTLASS.
void multiply_by_cutlass(const Execution& execution, std::string_view operation,
                         const GroupedShape& shape, const GroupedOperands& operands,
                         std::byte* workspace);

/// Returns the libraries for a shape's products, in the order in which a run without a table tries
/// them. The candidates keep a reference to the runtime.
std::vector<GroupedCandidate> grouped_libraries(Runtime& runtime, const GroupedShape& shape);
/// Puts products into an execution's stream. `library` must not be missing (see grouped_choice.h).
void multiply_groups(GroupedLibrary library, const Execution& execution, std::string_view operation,
                     const GroupedShape& shape, const GroupedOperands& operands,
                     std::byte* workspace);

}  // namespace tessera
