#pragma once

#include <vector>

#include "program/derive.h"

namespace tessera {

/// What dim 0 of an operand is, for operations between tokens and their routed rows.
enum class Routed : uint8_t {
  tokens,   ///< as an output that experts add to: partial if only some of them are here
  choices,  ///< integers in token order; of this rank's rows, if they are numbers of rows
  rows,
  places,  ///< [token blocks, local experts]
};

/// The rule of such an operation on one axis. Where no operand is split along dim 0, its labels say
/// it all. Otherwise
///
///  - tokens that are split go with rows of one exchange, and results in token order lie as they;
///  - tokens that are replicated go with rows that are split by experts, and results in token order
///    are partial, except choices.
///
/// All operands in token order lie alike, and so do all in row order.
HandRule routed_rule(std::vector<Routed> inputs, std::vector<Routed> outputs);

/// The type of rows that ranks make of their own tokens: V of that exchange. The rows of each
/// expert are the inner factor of the dim.
TypeOnAxis rows_of_exchange(int identity);

/// Whether a type splits dim 0.
inline bool splits_rows(const TypeOnAxis& type) { return type.split() && type.dim == 0; }

}  // namespace tessera
