#pragma once

#include <optional>
#include <string>
#include <string_view>

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

  /// The type of norms, the router and statistics.
  DType wide() const { return accumulation_dtype(compute); }

  /// Declares a matrix [out, in], initialised as the configuration says, which lies so over the
  /// ranks.
  Value matrix(std::string_view name, const Shape& shape,
               ParameterRole role = ParameterRole::matrix, const Distribution& distribution = {});
  /// The same for a projection that writes to the residual stream, which "scaled" initialisation
  /// treats differently.
  Value output_matrix(std::string_view name, const Shape& shape,
                      ParameterRole role = ParameterRole::matrix,
                      const Distribution& distribution = {});
  /// Writes a norm over rows of `size` entries, with a weight if the family has one.
  NormResult norm(std::string_view name, Value x, int64_t size, int64_t group,
                  std::optional<Value> residual = {});
  /// Writes a norm of queries or keys without a residual, and their rotation (ops/norm/norm.h).
  Value norm_and_rotary(std::string_view name, Value x, int64_t size, int64_t group, Value table,
                        int64_t head_dim);

 private:
  std::optional<Value> norm_weight(std::string_view name, int64_t size);
  NormOptions norm_options(int64_t group) const;
  Value declare_matrix(std::string_view name, const Shape& shape, ParameterRole role,
                       double deviation, const Distribution& distribution);
};

}  // namespace tessera
