#pragma once

#include "model/expert_tokens.h"

namespace tessera {

/// The results of a layer's experts.
struct ExpertResults {
  Value output;  ///< [tokens, hidden]: the chosen experts' weighted outputs, distributed as the
                 ///< tokens
  Value
      counts;  ///< i32 [experts]: of the tokens counted on this rank, those that chose each expert
};

/// Writes the experts of a layer, and the exchange of their tokens by all-gather or all-to-all as
/// the layout says (ExpertExchange). Tokens that are not split are not exchanged. Throws Error if
/// the experts do not divide over the mesh's expert axis.
ExpertResults write_experts(ModelWriter& writer, const ExpertLayout& layout,
                            const ExpertTokens& tokens);

}  // namespace tessera
