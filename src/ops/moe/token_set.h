#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// The tokens among which an expert takes no more than its capacity: those of each rank on its own,
/// or those of the micro-batch of all ranks. The capacity is counted of the same tokens.
enum class TokenSet : uint8_t { rank, micro_batch };
template <>
inline constexpr std::array<std::string_view, 2> kWords<TokenSet>{"rank", "micro_batch"};

}  // namespace tessera
