#pragma once

#include <array>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// How layers share a load-balance loss: each layer has a loss of its own, or the tokens of all
/// layers are pooled in one loss (as in Hugging Face's classes).
enum class BalanceForm { per_layer, pooled };
template <>
inline constexpr std::array<std::string_view, 2> kWords<BalanceForm>{"layer", "pooled"};

/// The set of tokens over which a load-balance loss evens out the load. ops/router/losses.h has the
/// formulas.
enum class BalanceTokens {
  rank,  ///< the micro-batch of one data-parallel rank, of all ranks that share its sequences
  micro_batch,  ///< the micro-batch of all ranks
  global_batch  ///< all micro-batches of the step so far, of all ranks
};
template <>
inline constexpr std::array<std::string_view, 3> kWords<BalanceTokens>{"rank", "micro_batch",
                                                                       "global_batch"};

}  // namespace tessera
