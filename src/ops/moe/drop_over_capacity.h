#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"
#include "ops/moe/routing.h"

namespace tessera {

/// The tokens among which an expert takes no more than its capacity: those of each rank on its own,
/// or those of the micro-batch of all ranks. The capacity is counted of the same tokens.
enum class TokenSet : uint8_t { rank, micro_batch };
template <>
inline constexpr std::array<std::string_view, 2> kWords<TokenSet>{"rank", "micro_batch"};

/// Drops choices of experts that have all they may take (see expert_capacity()): i32 [tokens, k],
/// with -1 for each choice beyond the capacity, in token order. For the set micro_batch the tokens
/// are whole, for the set rank they may be split. It is for tokens of several ranks; those of one
/// rank are dropped by token_counts().
Value drop_over_capacity(Builder& builder, Value indices, int64_t experts, double factor,
                         TokenSet set);

}  // namespace tessera
