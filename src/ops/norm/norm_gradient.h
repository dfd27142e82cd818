#pragma once

#include "ops/norm/norm.h"

namespace tessera {

/// The gradients of one norm: of x (and, being the same, of the residual) and of the weight.
struct NormGradients {
  Value x;       ///< of x's shape and type
  Value weight;  ///< in the accumulation type; null without weight
};

/// What a norm leaves for its gradient.
struct NormSaved {
  Value normalised;             ///< what was normalised: the sum, or x without residual
  std::optional<Value> weight;  ///< [group size]
  Value inverse_deviation;      ///< [rows, groups]
  std::optional<Value> mean;    ///< [rows, groups], of a layer norm
};

/// Builds them in one operation. `of_sum` is the sum's own gradient, which is added to that through
/// the norm before the one rounding; null when nothing else depends on the sum. Throws
/// InternalError when the shapes or types do not fit.
NormGradients norm_gradient(Builder& builder, const NormSaved& saved, Value of_output,
                            Value of_sum);

}  // namespace tessera
