#pragma once

#include "model/expert_layout.h"
#include "model/model_writer.h"
#include "ops/router/router.h"

namespace tessera {

/// A layer's tokens as its experts see them: in the expert view if ranks have their own tokens,
/// otherwise in the dense view.
struct ExpertTokens {
  Value x;               ///< [tokens, hidden]
  Value weights;         ///< [tokens, k]: those of the chosen experts
  Value chosen;          ///< i32 [tokens, k]: the experts
  Value kept;            ///< i32 [tokens, k]: the chosen experts without dropped choices
  bool split = false;    ///< true if ranks have their own tokens
  bool dropped = false;  ///< true if choices beyond the capacity have been dropped
  /// The identities of the rows of the layer's exchange (see Pieces::identity): of the rows that a
  /// rank makes of its own tokens, and of those that its experts receive.
  int sent_rows = -1;
  int received_rows = -1;
};

/// Writes the crossing of a layer's tokens to the expert view and returns them. If the model has a
/// capacity and several ranks have their own tokens, it drops choices beyond the capacity among the
/// tokens that the layout names. On one rank token_counts() drops them, which counts the choices
/// anyway.
ExpertTokens tokens_for_experts(ModelWriter& writer, const ExpertLayout& layout, Value x,
                                const RouterSelection& selection);

/// Returns the number of tokens of all ranks that chose each class of the router, the experts and
/// then the skip class if there is one, before dropping: i32 [classes], invariant, in the dense
/// view. `counts` are those of the kept choices of experts.
Value counts_of_all(ModelWriter& writer, const ExpertTokens& tokens, Value counts);

}  // namespace tessera
