#pragma once

#include "program/builder.h"

namespace tessera {

/// Returns rows of a table, looked up by token id. The table is [vocabulary, hidden], ids are i32
/// [tokens], and the result is [tokens, hidden]. Ids must be in [0, vocabulary). For another id, a
/// run on the processor throws Error, which names the id; on a device the id's row is zeros. The
/// gradient adds each token's row, in token order, to the table's main gradient, or to zeros if the
/// table has none.
///
/// Ids are rows of the whole table, also where ranks share it. Then each rank looks up its own
/// rows, and the result is partial over the ranks. Throws Error if they are not consecutive.
Value embedding(Builder& builder, Value table, Value ids);

/// Consecutive rows of a whole table, which a smaller table holds.
struct RowsOfTable {
  int64_t first = 0;  ///< index of the first of them in the whole table
  int64_t all = 0;    ///< the number of rows of the whole table
};

/// Returns embedding() in a table that holds only the rows `rows`. The row of an id outside them is
/// zeros, and its gradient is not added.
Value embedding_of_rows(Builder& builder, Value table, Value ids, RowsOfTable rows);

}  // namespace tessera
