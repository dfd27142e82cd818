#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"
#include "ops/moe/token_set.h"

namespace tessera {

/// The collective by which tokens reach the experts of other ranks (MegaScale-MoE, section 3.2):
///
/// - all_gather: each rank gets the tokens of all ranks that share the experts, and takes those of
///   its own experts. A reduce-scatter sums the results.
/// - all_to_all: each rank sends every token to the ranks of the token's experts.
/// - automatic takes the one that sends less: all_gather if a token has at least as many experts as
///   there are ranks.
enum class ExpertExchange : uint8_t { automatic, all_gather, all_to_all };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<ExpertExchange>{"auto", "all_gather",
                                                                          "all_to_all"};

/// The options of a layer whose experts are spread over ranks.
struct ExpertLayout {
  ExpertExchange exchange = ExpertExchange::automatic;
  /// The number of rows for which a rank reserves memory, divided by the number at an even load. A
  /// run that needs more rows throws Error. 0 stands for the largest possible number.
  double rows_bound = 0;
  /// The set of tokens from which an expert's capacity is computed, and among which experts drop
  /// choices. On one rank both sets are the same.
  TokenSet capacity_tokens = TokenSet::micro_batch;

  /// Returns whether ranks send rows to those of their experts, if a token has so many experts, on
  /// so many ranks: not all ranks then get all tokens.
  bool sends_rows(int64_t experts_per_token, int64_t ranks) const {
    return exchange == ExpertExchange::all_to_all ||
           (exchange == ExpertExchange::automatic && experts_per_token < ranks);
  }
};

}  // namespace tessera
