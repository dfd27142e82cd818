#pragma once

#include <string>

#include "ops/moe/device_grouped.h"

namespace tessera {

/// Why CUTLASS does not multiply here: this build lacks its headers, or the device is no Hopper.
/// Empty if it does.
std::string cutlass_missing(Runtime& runtime);

/// Puts products of groups in bf16 into a stream of the device cuda (see device_grouped()). Throws
/// Error if CUTLASS refuses them.
void multiply_by_cutlass(const Execution& execution, std::string_view operation,
                         const GroupedShape& shape, const GroupedOperands& operands,
                         std::byte* workspace);

}  // namespace tessera
