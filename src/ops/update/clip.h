#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// What clip_gradients() gives.
struct Clipped {
  Value norm;   ///< f64 [1]: the gradients' Euclidean norm
  Value scale;  ///< f64 [1]: the factor on the gradients; NaN where nothing may be updated
};

/// The factor that brings gradients whose squares add up to `squares`, f64 [1], down to the norm
/// `limit`, f64 [1]; 1 where the norm is within it or the limit is 0. Where the norm or one of
/// `losses`, f64 [1] each, is not finite the factor is NaN, so that a step that went wrong changes
/// nothing (see adamw()). No gradient.
Clipped clip_gradients(Builder& builder, Value squares, Value limit, std::span<const Value> losses);

}  // namespace tessera
