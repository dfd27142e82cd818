#pragma once

#include "ops/moe/routing.h"

namespace tessera {

// The exchange of routed rows between the ranks that share the experts of a layer (all-to-all
// expert parallelism: MegaScale-MoE section 3.2). Each rank makes the rows of its own tokens for
// all experts, in the order of the experts, and sends each expert's rows to the rank that holds the
// expert. There the rows of an expert are consecutive, in the order of the ranks that sent them.
// The numbers of rows are exchanged first, once for all exchanges of the layer in both directions.

/// The axis and the sizes of an exchange.
struct ExchangeOptions {
  Axis axis;                   ///< the axis that splits the experts, in equal parts
  int64_t local_experts = 0;   ///< experts of one rank
  int64_t sent_rows = 0;       ///< the rows that a rank sends at most: one for each choice
  RowBound bound;              ///< the bound of the rows that a rank receives
  int sent_identity = -1;      ///< RoutingOptions::identity of the rows that are sent
  int received_identity = -1;  ///< the identity of the rows that are received
};

/// An exchange, and the numbers of its rows. With one rank on the axis `received` is not used.
struct RowExchange {
  ExchangeOptions options;
  Value sent;      ///< i32 [experts + 1]: each expert's first row among the rows sent, then the end
  Value received;  ///< i32 [local experts, ranks]: the number of rows that came from each rank
  Value offsets;   ///< i32 [local experts + 1]: as `sent`, among the rows received
};

/// Exchanges the numbers of rows. `offsets` are TokenCounts::offsets of all experts, and vary over
/// the axis. A run of several ranks in which one receives more rows than the bound throws Error,
/// and so does a run of several ranks on an accelerator.
RowExchange exchange_counts(Builder& builder, Value offsets, const ExchangeOptions& options);

/// Sends rows [sent rows, width] to the ranks of their experts. The result, [bound, width], is
/// split by experts over the axis and varies over the other axes. Its rows past the last offset are
/// not written. The gradient is return_rows().
Value exchange_rows(Builder& builder, Value rows, const RowExchange& exchange);

/// Sends the experts' results, [bound, width], back to the ranks that sent the rows. The result is
/// [sent rows, width]. Rows that were not sent are not written. The gradient is exchange_rows().
Value return_rows(Builder& builder, Value rows, const RowExchange& exchange);

}  // namespace tessera
