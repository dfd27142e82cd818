#pragma once

#include "ops/moe/device_grouped.h"

namespace tessera {

/// Puts products of groups in bf16 into a stream of the device cuda (see device_grouped()). Throws
/// Error if this build lacks CUTLASS or the device is no Hopper.
void multiply_by_cutlass(const Execution& execution, std::string_view operation,
                         const GroupedShape& shape, const GroupedOperands& operands,
                         std::byte* workspace);

}  // namespace tessera
