#pragma once

#include <cstdint>
#include <string_view>

#include "ops/moe/routing.h"

namespace tessera {

/// Throws Error if a rank has more routed rows than are reserved. It names the node, with its
/// layer, the rank, how uneven the load is and the configuration key.
void require_row_bound(const Execution& execution, const RowBound& bound, int64_t rows);

/// Throws Error if the runtime has an accelerator and more rows may come than are reserved, of
/// which there can be `most`: nobody looks at their number there.
void refuse_row_bound_on_device(const Runtime& runtime, std::string_view operation,
                                const RowBound& bound, int64_t most);

/// Throws Error if the runtime has an accelerator: rows that are sent to the ranks of their experts
/// run on the processor only.
void refuse_sent_rows_on_device(const Runtime& runtime, std::string_view operation);

}  // namespace tessera
