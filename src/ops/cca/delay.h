#pragma once

#include "ops/cca/sequences.h"
#include "program/builder.h"

namespace tessera {

/// Returns the values (beside queries and keys) of compressed convolutional attention (ZAYA1,
/// appendix C): v[t] = (current[t], delayed[t - 1]). Both operands are projections of the tokens,
/// so the values come from a token and from the token before it. At a document's start,
/// delayed[t - 1] is zero.
///
/// current is [tokens, some columns] and delayed [tokens, other columns] in one floating type. The
/// result is [tokens, all columns]: with two key-value heads, head 0 comes from the token and head
/// 1 from the token before it. Each rank has all columns. If heads are split over the tensor axis,
/// each rank computes all values and takes those of its heads (ops/attention/repeat_heads.h).
/// Throws InternalError if the shapes or types do not fit.
Value join_delayed(Builder& builder, Value current, Value delayed, const SequenceOptions& options);

/// Returns join_delayed() of the next tokens of one sequence. `position`, i32 [1], is the position
/// of the first new token in the sequence. `last_row` (state), [1, delayed's columns], holds the
/// row of `delayed` of the token before it, and is not read if the position is 0. Afterwards
/// `last_row` holds the row of the last new token. There is no gradient.
Value cached_join_delayed(Builder& builder, Value current, Value delayed, Value last_row,
                          Value position);

}  // namespace tessera
