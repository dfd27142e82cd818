#pragma once

#include <optional>

#include "ops/norm/norm.h"

namespace tessera {

/// The map (x + bias) ⊙ scale. Both are [row], in the accumulation type.
struct ResidualScale {
  Value scale;
  Value bias;
};

/// The results of scaled_residual_norm().
struct ScaledResidual {
  Value output;  ///< [tokens, row], in the type of the sublayer's output
  Value stream;  ///< [tokens, row], in the accumulation type
};

/// Residual scaling (ZAYA1, section IV-A), fused with the RMSNorm that follows:
///
///   stream' = (x + of_x.bias) ⊙ of_x.scale + (stream + of_stream.bias) ⊙ of_stream.scale
///   output  = normalised(stream') · weight
///
/// x is the output of a sublayer, [tokens, row], of any floating type. stream is the residual
/// stream, [tokens, row], in the accumulation type, and so is stream'. The embedding alone has no
/// stream. weight is [row], in the accumulation type. All is computed in that type, and the output
/// is rounded once. A kept stream' that is normalised again gives the same bits. Throws
/// InternalError if the shapes or types do not fit, or for another norm than RMSNorm of whole rows.
ScaledResidual scaled_residual_norm(Builder& builder, Value x, const ResidualScale& of_x,
                                    std::optional<Value> stream,
                                    const std::optional<ResidualScale>& of_stream, Value weight,
                                    const NormOptions& options);

}  // namespace tessera
