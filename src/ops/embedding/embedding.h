#pragma once

#include "program/builder.h"

namespace tessera {

/// Rows of a table by token id: table [vocabulary, hidden], ids i32 [tokens], result
/// [tokens, hidden]. Ids lie in [0, vocabulary): the loader has checked them. The gradient adds
/// each token's row into the table's main gradient, in token order: in a program with a backward
/// pass the table must be a parameter.
Value embedding(Builder& builder, Value table, Value ids);

}  // namespace tessera
