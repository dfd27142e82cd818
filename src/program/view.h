#pragma once

#include "program/builder.h"

namespace tessera {

/// The part of a value that begins at its element `first`, seen as `shape`: a parameter within its
/// unit's flat memory, a slice of what was gathered. It is the value's own memory and costs
/// nothing. Where the value has no main gradient, the part's gradient becomes one of the whole that
/// is zero elsewhere. Throws InternalError when the part does not lie within the value.
Value view(Builder& builder, Value whole, int64_t first, const Shape& shape);

}  // namespace tessera
