#pragma once

#include <vector>

#include "program/derive.h"

namespace tessera {

// Which distributions over ranks an operation between tokens and their routed rows accepts, and
// which it returns. Types are in comm/distribution.h, rules in program/derive.cpp. In an exchange
// the ranks send the rows of a layer to the ranks of their experts (ops/moe/exchange.h).

/// The meaning of an operand's rows.
enum class Routed : uint8_t {
  tokens,         ///< floats, one row for each token
  choices,        ///< integers, one row for each token: its experts, or the indices of its rows
  rows,           ///< one row for each pair of a token and an expert that it chose, by expert
  block_offsets,  ///< TokenCounts::block_offsets (ops/moe/routing.h), [token blocks, local experts]
};

/// Returns the rule of an operation between tokens and their routed rows, on one axis. If neither
/// tokens, choices nor rows are split along dim 0, the operation's labels decide. Otherwise
///
///  - if the tokens are split, the rows must have the type rows_of_exchange() of one exchange, and
///    results in token order are split like the tokens;
///  - if the tokens are replicated, the rows must be split by experts, and results in token order
///    are partial, except choices, which are replicated.
///
/// All operands in token order must be split alike, except that choices may be invariant where the
/// tokens are replicated. All operands in row order must be split alike. The rule throws
/// DistributionError for any other types.
HandRule routed_rule(std::vector<Routed> inputs, std::vector<Routed> outputs);

/// Returns the type of the rows that ranks make of their own tokens: varying, with the pieces of
/// the exchange `identity`. The rows of each expert are the inner factor of the dim.
TypeOnAxis rows_of_exchange(int identity);

/// Returns whether a type splits dim 0.
inline bool splits_rows(const TypeOnAxis& type) { return type.split() && type.dim == 0; }

/// Returns whether two types split the same dim into the same pieces.
inline bool same_pieces(const TypeOnAxis& a, const TypeOnAxis& b) {
  return a.placement == b.placement && a.dim == b.dim && a.pieces == b.pieces;
}

}  // namespace tessera
