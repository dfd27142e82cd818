#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// The set of tokens of which an expert takes no more than its capacity: the tokens of one rank, or
/// those of the micro-batch of all ranks. The capacity is a share of the same set.
enum class TokenSet : uint8_t { rank, micro_batch };
template <>
inline constexpr std::array<std::string_view, 2> kWords<TokenSet>{"rank", "micro_batch"};

}  // namespace tessera
