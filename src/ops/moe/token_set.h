#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// The set of tokens to which an expert's capacity applies: the tokens of one rank, or those of all
/// ranks in a micro-batch. The capacity is computed from the size of the set (expert_capacity()),
/// and the expert takes no more tokens of the set than its capacity.
enum class TokenSet : uint8_t { rank, micro_batch };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<TokenSet>{"rank", "micro_batch"};

}  // namespace tessera
