#pragma once

#include "program/builder.h"

namespace tessera {

/// Looks up rows of a table by token id. The table is [vocabulary, hidden], ids are i32 [tokens],
/// and the result is [tokens, hidden]. Ids lie in [0, vocabulary): on the processor, a run throws
/// Error that names one that does not; on a device, its row is zeros. The gradient adds each
/// token's row, in token order, to the table's main gradient, or to zeros if the table has none.
///
/// Ids count rows of the whole table, also where ranks share it. A rank then looks up the rows that
/// it has, so the result is partial over them. Throws Error if its rows are not consecutive.
Value embedding(Builder& builder, Value table, Value ids);

/// The rows that a table has of a whole one.
struct RowsOfTable {
  int64_t first = 0;
  int64_t all = 0;  ///< how many the whole has
};

/// The same for a table that has the rows from `rows.first` on of a whole one. The row of an id
/// outside them is zeros, and gives them no gradient.
Value embedding_of_rows(Builder& builder, Value table, Value ids, RowsOfTable rows);

}  // namespace tessera
