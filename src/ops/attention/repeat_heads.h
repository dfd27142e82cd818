#pragma once

#include <cstdint>

#include "program/builder.h"

namespace tessera {

/// Repeats each head of keys or values `times` times: [tokens, heads · head_dim] becomes [tokens,
/// heads · times · head_dim], where a head's copies follow one another. The gradient adds the
/// copies in the accumulation type. Throws InternalError if the shapes or types do not fit.
///
/// It is for ranks that are more than the key heads. All of them have all key heads; even pieces of
/// the repeated ones, dim 1 converted from replicated to sharded, give each rank the key heads of
/// its queries.
Value repeat_heads(Builder& builder, Value x, int64_t head_dim, int64_t times);

}  // namespace tessera
