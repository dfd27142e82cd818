#pragma once

#include <string>

#include "ops/moe/device_grouped.h"

namespace tessera {

/// Returns the reason why CUTLASS cannot multiply here: this build lacks its headers, or the device
/// is not Hopper. Returns an empty string if it can.
std::string why_cutlass_is_missing(Runtime& runtime);

/// Puts grouped products in bf16 into a stream of the device cuda (see device_grouped()). Throws
/// Error if CUTLASS refuses them.
void multiply_by_cutlass(const Execution& execution, std::string_view operation,
                         const GroupedShape& shape, const GroupedOperands& operands,
                         std::byte* workspace);

}  // namespace tessera
