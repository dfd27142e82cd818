#pragma once

#include <array>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// The number of load-balance losses: one for each layer, or one for the tokens of all layers
/// together (pooled, as in Hugging Face's model classes).
enum class BalanceForm { per_layer, pooled };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<BalanceForm>{"layer", "pooled"};

/// The tokens whose choices of experts a load-balance loss (ops/router/losses.h) evens out.
enum class BalanceTokens {
  rank,  ///< one data-parallel rank's micro-batch, counted over the ranks that share its sequences
  micro_batch,  ///< the micro-batch of all ranks
  global_batch  ///< the micro-batches of all ranks, from the first one of the step to this one
};
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<BalanceTokens>{"rank", "micro_batch",
                                                                         "global_batch"};

}  // namespace tessera
