#pragma once

#include <vector>

#include "program/derive.h"

namespace tessera {

/// The meaning of an operand's dim 0, for operations between tokens and their routed rows.
enum class Routed : uint8_t {
  tokens,   ///< floats in token order; as an output partial if only some experts are local
  choices,  ///< integers in token order; as indices of rows they count this rank's rows
  rows,
  block_offsets,  ///< TokenCounts::block_offsets [token blocks, local experts]
};

/// Returns the rule of such an operation on one axis. If no operand is split along dim 0, its
/// labels decide. Otherwise
///
///  - split tokens go with rows of one exchange, and results in token order are split as the tokens
///    are;
///  - replicated tokens go with rows that are split by experts, and results in token order are
///    partial, except choices, which are replicated.
///
/// All operands in token order have the same distribution, and so do all in row order.
HandRule routed_rule(std::vector<Routed> inputs, std::vector<Routed> outputs);

/// Returns the type of rows that ranks make of their own tokens: varying, of that exchange. The
/// rows of each expert are the inner factor of the dim.
TypeOnAxis rows_of_exchange(int identity);

/// Returns whether a type splits dim 0.
inline bool splits_rows(const TypeOnAxis& type) { return type.split() && type.dim == 0; }

}  // namespace tessera
