#pragma once

#include <vector>

#include "program/derive.h"

namespace tessera {

// The rules of types (how values are distributed over ranks) for operations between tokens and
// their routed rows. Types are in comm/distribution.h, rules in program/derive.h. An exchange is a
// layer's sending of rows to the ranks of their experts (ops/moe/exchange.h).

/// What dim 0 of an operand counts.
enum class Routed : uint8_t {
  tokens,         ///< floats in token order; an output is partial if only some experts are local
  choices,        ///< integers in token order, such as indices of this rank's rows
  rows,           ///< routed rows
  block_offsets,  ///< TokenCounts::block_offsets [token blocks, local experts]
};

/// Returns the rule of such an operation on one axis. If no operand is split along dim 0, the
/// operation's labels decide. Otherwise
///
///  - if the tokens are split, the rows must be of one exchange, and results in token order are
///    split like the tokens;
///  - if the tokens are replicated, the rows must be split by experts, and results in token order
///    are partial, except choices, which are replicated.
///
/// All operands in token order have the same distribution, and so do all in row order.
HandRule routed_rule(std::vector<Routed> inputs, std::vector<Routed> outputs);

/// Returns the type of rows that ranks make of their own tokens: varying, of the exchange
/// `identity`. The rows of each expert are the inner factor of the dim.
TypeOnAxis rows_of_exchange(int identity);

/// Returns whether a type splits dim 0.
inline bool splits_rows(const TypeOnAxis& type) { return type.split() && type.dim == 0; }

}  // namespace tessera
