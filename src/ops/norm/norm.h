#pragma once

#include <cstdint>
#include <optional>

#include "ops/norm/norm_kind.h"
#include "program/builder.h"

namespace tessera {

/// The options of norm().
struct NormOptions {
  NormKind kind = NormKind::rms;
  double epsilon = 1e-5;
  /// The size of the groups that the last dim is cut into. Each group is normalised on its own. It
  /// is the head's size for a norm per head, and 0 for the whole row.
  int64_t group = 0;
};

/// The results of norm().
struct NormResult {
  Value output;  ///< of x's shape and type
  Value sum;     ///< x + residual, rounded to x's type; null without a residual
};

/// Applies RMSNorm or LayerNorm (without bias) to the last dim. The addition of a residual before
/// the norm is fused with it: sum = x + residual, output = normalised(sum) · weight.
///
/// x and residual are [..., row] in the same floating type. weight is [row], or [group] shared by
/// all groups, in the accumulation type. Without a weight the norm has no parameters (OLMo's
/// LayerNorm). The sum is rounded before it is normalised, so a kept sum that is normalised again
/// gives the same bits. Statistics and products are computed in the accumulation type, and the
/// output is rounded once. Throws InternalError if the shapes or types do not fit.
NormResult norm(Builder& builder, Value x, std::optional<Value> weight, const NormOptions& options,
                std::optional<Value> residual = {});

/// Applies the norm to a sum that was computed before, and passes it on: the results and gradients
/// have the bits that norm() would have with the addends. In particular the gradient of the norm
/// and that of the later uses of the sum are added in one operation and rounded once. A chunk of a
/// pipeline begins with it, whose stream another stage has added up.
NormResult norm_of_sum(Builder& builder, Value sum, std::optional<Value> weight,
                       const NormOptions& options);

/// Applies the norm and then rotary position embedding to queries or keys, in one operation. The
/// result has the bits of rotary(norm(x), table) (see ops/rotary/rotary.h). x is [tokens, heads ·
/// head_dim]. The elements that are normalised together are those of one or more whole heads.
/// Throws InternalError if the shapes or types do not fit.
Value norm_and_rotary(Builder& builder, Value x, std::optional<Value> weight,
                      const NormOptions& options, Value table, int64_t head_dim);

}  // namespace tessera
