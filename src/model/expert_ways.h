#pragma once

#include "model/expert_tokens.h"

namespace tessera {

/// What a layer's experts give.
struct ExpertResults {
  Value output;  ///< [tokens, hidden]: the chosen experts' weighted outputs, lying as the tokens
  Value counts;  ///< i32 [experts]: how many of the tokens that were counted here chose each expert
};

/// Writes the experts of a layer and the way of the tokens to them, by all-gather or all-to-all as
/// the layout says (ExpertExchange). Tokens that are not split have no way to go. Throws Error if
/// the experts do not divide over the mesh's expert axis.
ExpertResults write_experts(ModelWriter& writer, const ExpertLayout& layout,
                            const ExpertTokens& tokens);

}  // namespace tessera
