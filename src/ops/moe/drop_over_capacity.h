#pragma once

#include <cstdint>

#include "ops/moe/routing.h"
#include "ops/moe/token_set.h"

namespace tessera {

/// Drops choices of experts that have all they may take (see expert_capacity()): i32 [tokens, k],
/// with -1 for each choice beyond the capacity, in token order. For the set micro_batch the tokens
/// are whole, for the set rank they may be split. It is for tokens of several ranks; those of one
/// rank are dropped by token_counts().
Value drop_over_capacity(Builder& builder, Value indices, int64_t experts, double factor,
                         TokenSet set);

}  // namespace tessera
