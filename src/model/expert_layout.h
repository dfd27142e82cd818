#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"
#include "ops/moe/token_set.h"

namespace tessera {

/// The collective by which tokens reach the experts of other ranks. all_gather: each rank gets the
/// tokens of all ranks that share the experts, takes those of its own experts, and the results are
/// summed by a reduce-scatter. all_to_all: each rank sends every token to the ranks of its experts.
/// automatic takes the one that sends less: all_gather if a token has at least as many experts as
/// there are ranks (MegaScale-MoE, section 3.2).
enum class ExpertExchange : uint8_t { automatic, all_gather, all_to_all };
template <>
inline constexpr std::array<std::string_view, 3> kWords<ExpertExchange>{"auto", "all_gather",
                                                                        "all_to_all"};

/// The options of a layer whose experts are spread over ranks.
struct ExpertLayout {
  ExpertExchange exchange = ExpertExchange::automatic;
  /// The rows that a rank reserves memory for, as a multiple of those of an even load. A run that
  /// exceeds it throws Error. 0 stands for the largest possible number of rows.
  double rows_bound = 0;
  /// The set of tokens from which an expert's capacity is computed, and among which experts drop
  /// choices. On one rank both sets are the same.
  TokenSet capacity_tokens = TokenSet::micro_batch;
};

}  // namespace tessera
