#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/model_config.h"
#include "model/parameter.h"
#include "ops/norm/norm.h"

namespace tessera {

/// What the layers of a model share while it is written into a program: the builder, the
/// configuration, the element types and the list of parameters.
struct ModelWriter {
  Builder& builder;
  const ModelConfig& config;
  DType compute;  ///< of activations and matrices
  ParameterList parameters;
  std::string unit;  ///< of the parameters declared next

  /// Norms, the router and statistics are in this type.
  DType wide() const { return accumulation_dtype(compute); }

  /// A matrix [out, in] as the configuration initialises it; `output` marks the projections that
  /// write to the residual stream.
  Value matrix(std::string_view name, const Shape& shape,
               ParameterRole role = ParameterRole::matrix, bool output = false);
  /// A norm over rows of `size` entries, with its weight where the family has one.
  NormResult norm(std::string_view name, Value x, int64_t size, int64_t group,
                  std::optional<Value> residual = {});
};

}  // namespace tessera
