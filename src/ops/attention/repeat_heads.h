#pragma once

#include <cstdint>

#include "program/builder.h"

namespace tessera {

/// Returns keys or values with each head repeated `times` times: [tokens, heads · head_dim] becomes
/// [tokens, heads · times · head_dim], where a head's copies follow one another. The gradient sums
/// the copies in the accumulation type. Throws InternalError if the shapes or types do not fit.
///
/// Layers use it if query heads are split over more ranks than there are key heads. Each rank has
/// all key heads. After the result is converted along dim 1 from replicated to sharded, each rank
/// has the key heads of its queries.
Value repeat_heads(Builder& builder, Value x, int64_t head_dim, int64_t times);

}  // namespace tessera
