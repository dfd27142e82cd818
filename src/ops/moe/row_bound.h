#pragma once

#include <cstdint>
#include <string_view>

#include "ops/moe/routing.h"

namespace tessera {

// The checks of a RowBound (ops/moe/routing.h): the number of routed rows that a rank reserves.

/// Throws Error if this rank's `rows` are more than `bound` reserves. The error names the node with
/// its layer, the rank, the imbalance of the load and the configuration key.
void require_row_bound(const Execution& execution, const RowBound& bound, int64_t rows);

/// Throws Error if the runtime has an accelerator and fewer rows are reserved than `possible_rows`,
/// the largest number that a run can have: devices do not check the number of rows.
void refuse_row_bound_on_device(const Runtime& runtime, std::string_view operation,
                                const RowBound& bound, int64_t possible_rows);

/// Throws Error if the runtime has an accelerator: only the processor can send rows to the ranks of
/// their experts.
void refuse_sent_rows_on_device(const Runtime& runtime, std::string_view operation);

}  // namespace tessera
