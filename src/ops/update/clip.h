#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// The results of clip_gradients().
struct Clipped {
  Value norm;   ///< f64 [1]: the gradients' Euclidean norm
  Value scale;  ///< f64 [1]: the factor on the gradients; NaN if nothing may be updated
};

/// Returns the norm of the gradients, and the factor that scales them down to the norm `limit`, f64
/// [1]. `squares`, f64 [1], is the sum of the gradients' squares. The factor is 1 if the norm is
/// within the limit, or if the limit is not above 0. It is NaN if the norm or one of `losses`, f64
/// [1] each (at most 64 on a device), is not finite. The update then changes nothing (adamw(),
/// muon_momentum(), muon_update()). There is no gradient.
Clipped clip_gradients(Builder& builder, Value squares, Value limit, std::span<const Value> losses);

}  // namespace tessera
