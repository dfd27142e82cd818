#pragma once

#include "model/expert_layout.h"
#include "model/model_writer.h"
#include "ops/router/router.h"

namespace tessera {

/// A layer's tokens as its experts see them: in the expert view if ranks have their own tokens,
/// otherwise as they are.
struct ExpertTokens {
  Value x;               ///< [tokens, hidden]
  Value weights;         ///< [tokens, k], of the chosen experts
  Value chosen;          ///< i32 [tokens, k]: the experts
  Value kept;            ///< i32 [tokens, k]: the same, without choices that have been dropped
  bool split = false;    ///< whether ranks have their own tokens
  bool dropped = false;  ///< whether choices beyond the capacity have been dropped
  /// What the rows of the layer's exchange are told apart by: those that a rank makes of its own
  /// tokens, and those that its experts get.
  int sent_rows = -1;
  int received_rows = -1;
};

/// Writes the passage of a layer's tokens to the expert view. If the model has a capacity and
/// several ranks have their own tokens, it drops choices beyond the capacity among the tokens that
/// the layout names. Choices of one rank's tokens are left to token_counts(), which counts them
/// anyway.
ExpertTokens tokens_for_experts(ModelWriter& writer, const ExpertLayout& layout, Value x,
                                const RouterSelection& selection);

/// How many tokens of all ranks chose each class of the router, the experts and then the skip class
/// if there is one, before dropping: i32 [classes], invariant, in the dense view. `counts` are
/// those of the kept choices of experts.
Value counts_of_all(ModelWriter& writer, const ExpertTokens& tokens, Value counts);

}  // namespace tessera
