#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ops/moe/routing.h"

namespace tessera {

/// Throws Error if a rank has more routed rows than are reserved. It names the node, with its
/// layer, the rank, how uneven the load is and the configuration key.
void require_row_bound(const Execution& execution, const std::optional<RowBound>& bound,
                       int64_t rows);

/// Throws Error if rows are reserved by a bound and the runtime has an accelerator, which does not
/// tell the host how many rows there are.
void refuse_row_bound_on_device(const Runtime& runtime, std::string_view operation, bool bounded);

}  // namespace tessera
