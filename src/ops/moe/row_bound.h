#pragma once

#include <cstdint>
#include <string_view>

#include "ops/moe/routing.h"

namespace tessera {

/// Throws Error if a rank has more routed rows than are reserved. It names the node, with its
/// layer, the rank, how uneven the load is and the configuration key.
void require_row_bound(const Execution& execution, const RowBound& bound, int64_t rows);

/// Throws Error if the runtime has an accelerator: what experts over several ranks need does not
/// run there.
void refuse_experts_on_device(const Runtime& runtime, std::string_view operation);

}  // namespace tessera
