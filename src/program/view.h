#pragma once

#include "program/builder.h"

namespace tessera {

/// A view of `whole` that begins at element `first` and has the shape `shape`: a parameter within
/// its unit's flat memory, a slice of a gathered value. It is the memory of `whole` and costs
/// nothing. If `whole` has no main gradient, the view's gradient becomes a gradient of `whole` that
/// is zero elsewhere. Throws InternalError if the view does not lie within `whole`.
Value view(Builder& builder, Value whole, int64_t first, const Shape& shape);

}  // namespace tessera
