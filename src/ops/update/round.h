#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// Writes each of `masters` (f32) to the weight with the same index, rounded to its type. Both are
/// kept values of one size.
void round_to_weights(Builder& builder, std::span<const Value> masters,
                      std::span<const Value> weights);

}  // namespace tessera
