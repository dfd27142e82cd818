#pragma once

#include "program/builder.h"

namespace tessera {

/// Returns rows of a table, looked up by token id. The table is [vocabulary, hidden], ids are i32
/// [tokens], and the result is [tokens, hidden]. Ids must be in [0, vocabulary). For another id, a
/// run on the processor throws Error, which names the id; on a device the id's row is zeros. The
/// gradient adds each token's row, in token order, to the table's main gradient, or to zeros if the
/// table has none.
///
/// Ids are rows of the whole table, also where ranks share it. Then a rank looks up its own rows,
/// which must be consecutive (else Error), and the result is partial: a sum over ranks.
Value embedding(Builder& builder, Value table, Value ids);

/// The consecutive rows of a whole table that a smaller table holds.
struct RowsOfTable {
  int64_t first = 0;  ///< index of the smaller table's first row in the whole table
  int64_t all = 0;    ///< the number of rows of the whole table
};

/// Returns embedding() for a table that holds only these rows of a whole table. An id of another
/// row gets zeros, and its gradient is not added.
Value embedding_of_rows(Builder& builder, Value table, Value ids, RowsOfTable rows);

}  // namespace tessera
