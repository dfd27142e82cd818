#pragma once

#include <string>

#include "ops/moe/device_grouped.h"

namespace tessera {

/// Returns the reason why CUTLASS's grouped products cannot run here: this build lacks CUTLASS's
/// headers, or the device is not Hopper. Returns an empty string if they can.
std::string why_cutlass_is_missing(Runtime& runtime);

/// Puts grouped products in bf16 into a stream of the device cuda (see device_grouped()). Throws
/// Error if CUTLASS refuses them, and InternalError if this build lacks CUTLASS.
void multiply_by_cutlass(const Execution& execution, std::string_view operation,
                         const GroupedShape& shape, const GroupedOperands& operands,
                         std::byte* workspace);

}  // namespace tessera
