#pragma once

#include "program/builder.h"

namespace tessera {

/// Looks up rows of a table by token id. The table is [vocabulary, hidden], ids are i32 [tokens],
/// and the result is [tokens, hidden]. Ids lie in [0, vocabulary); the loader has checked them. The
/// gradient adds each token's row, in token order, to the table's main gradient, or to zeros if the
/// table has none.
Value embedding(Builder& builder, Value table, Value ids);

}  // namespace tessera
