#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ops/moe/routing.h"

namespace tessera {

/// Throws Error if a rank has more routed rows than are reserved. It names the node, with its
/// layer, the rank, how uneven the load is and the configuration key.
void require_row_bound(const Execution& execution, const RowBound& bound, int64_t rows);

/// The rows of a value [rows, width] if the load is even: where dim 0 is a bound, those that are
/// expected of it. The costs of experts' products count these.
int64_t expected_rows(const Builder& builder, Value value);

/// The FLOPs of the matrix products that an operation's labels name, with `rows` rows in place of
/// the bound that its matrices [rows, width] have (see matrix_product_flops()).
double grouped_flops(const Operation& operation, std::span<const Spec> inputs, int64_t rows);

/// Throws Error if the runtime has an accelerator: what experts over several ranks need does not
/// run there.
void refuse_experts_on_device(const Runtime& runtime, std::string_view operation);

}  // namespace tessera
