#pragma once

#include "program/builder.h"

namespace tessera {

/// Rows of a table by token id: table [vocabulary, hidden], ids i32 [tokens], result
/// [tokens, hidden]. Ids lie in [0, vocabulary): the loader has checked them. The gradient adds
/// each token's row, in token order, into the table's main gradient, or into zeros where it has
/// none.
Value embedding(Builder& builder, Value table, Value ids);

}  // namespace tessera
