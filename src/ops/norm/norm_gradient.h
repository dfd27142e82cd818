#pragma once

#include "ops/norm/norm.h"

namespace tessera {

/// The gradients of one norm: of x and of the weight. The residual's gradient is the same as x's.
struct NormGradients {
  Value x;       ///< of x's shape and type
  Value weight;  ///< in the accumulation type; null without a weight
};

/// The values that a norm leaves for its gradient.
struct NormSaved {
  Value normalised;             ///< what was normalised: the sum, or x without residual
  std::optional<Value> weight;  ///< [group size]
  Value inverse_deviation;      ///< [rows, groups]
  std::optional<Value> mean;    ///< [rows, groups], only of a layer norm
  bool by_heads = false;        ///< whether groups of a row were normalised by themselves
  std::optional<Value> rotary_table = {};  ///< [tokens, channels], if the output was rotated
  int64_t head_dim = 0;                    ///< of the heads that were rotated
};

/// Builds the gradients in one operation. `of_sum` is the sum's own gradient. It is added to the
/// gradient through the norm before the one rounding. It is null if nothing else depends on the
/// sum. Throws InternalError if the shapes or types do not fit.
NormGradients norm_gradient(Builder& builder, const NormSaved& saved, Value of_output,
                            Value of_sum);

}  // namespace tessera
