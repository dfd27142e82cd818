#pragma once

#include <optional>

#include "ops/norm/norm.h"

namespace tessera {

/// The vectors of (x + bias) ⊙ scale: [row] each, in the accumulation type.
struct ResidualScale {
  Value scale;
  Value bias;
};

/// The results of scaled_residual_norm().
struct ScaledResidual {
  Value output;  ///< [tokens, row], in the type of the sublayer's output
  Value stream;  ///< [tokens, row], in the accumulation type
};

/// Computes residual scaling (ZAYA1, section IV-A), fused with the RMSNorm that follows:
///
///   stream' = (x + x_scaling.bias) ⊙ x_scaling.scale
///           + (stream + stream_scaling.bias) ⊙ stream_scaling.scale
///   output  = normalised(stream') · weight
///
/// x is the output of a sublayer or of the embedding, [tokens, row], of any floating type. stream
/// is the residual stream, [tokens, row], in the accumulation type, and so is stream'. After the
/// embedding there is no stream yet, nor its term. weight is [row], in that type. Everything is
/// computed in that type, and the output is rounded once. A kept stream' that is normalised again
/// gives the same bits. Throws InternalError if the shapes or types do not fit, or for another norm
/// than RMSNorm of whole rows.
ScaledResidual scaled_residual_norm(Builder& builder, Value x, const ResidualScale& x_scaling,
                                    std::optional<Value> stream,
                                    const std::optional<ResidualScale>& stream_scaling,
                                    Value weight, const NormOptions& options);

}  // namespace tessera
