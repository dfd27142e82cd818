#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// Sets kept values (main gradients, sums) to zero.
void zero(Builder& builder, std::span<const Value> values);

}  // namespace tessera
