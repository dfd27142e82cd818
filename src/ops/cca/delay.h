#pragma once

#include "ops/cca/sequences.h"
#include "program/builder.h"

namespace tessera {

/// Returns the values of compressed convolutional attention (ZAYA1, appendix C): v[t] =
/// (current[t], delayed[t - 1]). They join values from the token itself with values from the token
/// before it. delayed[t - 1] is zero at a document's start. Both operands are projections of the
/// tokens.
///
/// current is [tokens, some columns] and delayed [tokens, other columns] in one floating type. The
/// result is [tokens, all columns]: with two key-value heads, head 0 comes from the token and head
/// 1 from the token before it. Each rank has all columns. If heads are split over the tensor axis,
/// each rank computes all values and takes those of its heads (ops/attention/repeat_heads.h).
/// Throws InternalError if the shapes or types do not fit.
Value join_delayed(Builder& builder, Value current, Value delayed, const SequenceOptions& options);

/// Returns join_delayed() of the next tokens of one sequence. `last_row` (state), [1, delayed's
/// columns], holds the row of `delayed` of the token before these tokens. It is read unless the
/// sequence begins here. Then the row of the last token replaces it. `position`, i32 [1], is the
/// position of the first new token in the sequence. There is no gradient.
Value cached_join_delayed(Builder& builder, Value current, Value delayed, Value last_row,
                          Value position);

}  // namespace tessera
