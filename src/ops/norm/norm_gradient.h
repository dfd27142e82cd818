#pragma once

#include "ops/norm/norm.h"

namespace tessera {

/// The gradients of one norm. The residual's gradient is the same as x's.
struct NormGradients {
  Value x;       ///< of x's shape and type
  Value weight;  ///< in the accumulation type; null without a weight
};

/// The values that a norm keeps for its gradient.
struct NormSaved {
  Value normalised;                        ///< the sum, or x without a residual
  std::optional<Value> weight;             ///< [group size]
  Value inverse_deviation;                 ///< [rows, groups]
  std::optional<Value> mean;               ///< [rows, groups], for a layer norm only
  bool by_heads = false;                   ///< true if groups of a row were normalised one by one
  std::optional<Value> rotary_table = {};  ///< [tokens, channels], if the output was rotated
  int64_t head_dim = 0;                    ///< the size of the heads that were rotated, or 0
};

/// Computes the gradients in one operation. `sum_gradient` is the gradient that the sum has from
/// its uses beside the norm, or null without such uses. It is added to the gradient through the
/// norm, and the result is rounded once. Throws InternalError if the shapes or types do not fit.
NormGradients norm_gradient(Builder& builder, const NormSaved& saved, Value output_gradient,
                            Value sum_gradient);

}  // namespace tessera
