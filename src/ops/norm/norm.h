#pragma once

#include <cstdint>
#include <optional>

#include "ops/norm/norm_kind.h"
#include "program/builder.h"

namespace tessera {

/// How rows are normalised.
struct NormOptions {
  NormKind kind = NormKind::rms;
  double epsilon = 1e-5;
  /// The last dim is cut into groups of this size that are normalised each on its own: the head's
  /// size for a norm per head, 0 for the whole row.
  int64_t group = 0;
};

/// What norm() gives.
struct NormResult {
  Value output;  ///< of x's shape and type
  Value sum;     ///< x + residual, rounded to x's type; null without residual
};

/// RMSNorm or LayerNorm (without bias) of the last dim, fused with the residual's addition before
/// it: sum = x + residual, output = normalised(sum) · weight.
///
/// x and residual: [..., row], of one floating type. weight: [row], or [group] shared by all
/// groups, in the accumulation type; without one the norm has no parameters (OLMo's LayerNorm). The
/// sum is rounded before it is normalised, so that normalising a kept sum again gives the same
/// bits; statistics and products are taken in the accumulation type and the output is rounded once.
/// Throws InternalError when the shapes or types do not fit.
NormResult norm(Builder& builder, Value x, std::optional<Value> weight, const NormOptions& options,
                std::optional<Value> residual = {});

}  // namespace tessera
