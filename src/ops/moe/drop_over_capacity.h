#pragma once

#include <cstdint>

#include "ops/moe/routing.h"
#include "ops/moe/token_set.h"

namespace tessera {

/// Drops the choices of each expert beyond its capacity (see expert_capacity()): i32 [tokens, k],
/// with -1 for each choice beyond the capacity, in token order. For TokenSet::micro_batch the
/// tokens must be whole; for TokenSet::rank they may be split.
///
/// It is for tokens of several ranks, where the set that a capacity counts is not the tokens whose
/// rows a rank makes. On one rank token_counts() drops the choices, since it counts them anyway and
/// has a kernel for devices: for 4096 tokens of 4 choices it takes 13 microseconds on two cores
/// with or without a capacity, and this operation 50 more.
Value drop_over_capacity(Builder& builder, Value indices, int64_t experts, double factor,
                         TokenSet set);

}  // namespace tessera
