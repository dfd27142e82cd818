#pragma once

#include "ops/cca/sequences.h"
#include "program/builder.h"

namespace tessera {

/// The values of compressed convolutional attention (ZAYA1, appendix C): each token's own values
/// joined with those that the token before it gives, v[t] = (current[t], delayed[t - 1]), where
/// delayed is zero before a document's start. It takes the projections of the tokens, which are
/// narrower than the tokens themselves.
///
/// current is [tokens, some columns] and delayed [tokens, other columns] in one floating type. The
/// result is [tokens, all columns]: with two key-value heads, head 0 is of the token and head 1 of
/// the one before. Columns are whole on each rank; with heads split over the tensor axis, each rank
/// computes all values and takes those of its heads (ops/attention/repeat_heads.h). Throws
/// InternalError if the shapes or types do not fit.
Value join_delayed(Builder& builder, Value current, Value delayed, const SequenceOptions& options);

/// The same for the next tokens of one sequence. `last_row` (state), [1, delayed's columns], has
/// the row of `delayed` of the token before. It is read unless the sequence begins here, and then
/// replaced by that of the last token. `position`, i32 [1], is the place of the first new token in
/// the sequence. There is no gradient.
Value cached_join_delayed(Builder& builder, Value current, Value delayed, Value last_row,
                          Value position);

}  // namespace tessera
