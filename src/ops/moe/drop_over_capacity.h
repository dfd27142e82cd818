#pragma once

#include <cstdint>

#include "ops/moe/routing.h"
#include "ops/moe/token_set.h"

namespace tessera {

/// Drops choices of experts that have all they may take (see expert_capacity()): i32 [tokens, k],
/// with -1 for each choice beyond the capacity, in token order. For the set micro_batch the tokens
/// are whole, for the set rank they may be split.
///
/// It is for tokens of several ranks, whose set is not that of the rows that a rank makes. Those of
/// one rank are dropped by token_counts(), which counts them anyway and has a kernel for devices:
/// for 4096 tokens of 4 choices it takes 13 microseconds on two cores with or without a capacity,
/// and this operation 50 more.
Value drop_over_capacity(Builder& builder, Value indices, int64_t experts, double factor,
                         TokenSet set);

}  // namespace tessera
