#include "model/model_writer.h"

#include <cmath>

namespace tessera {

Value ModelWriter::matrix(std::string_view name, const Shape& shape, ParameterRole role,
                          bool output) {
  Initialization how{.deviation = config.initialization_deviation,
                     .cutoff = config.initialization_cutoff};
  if (output && config.initialization == "scaled") {
    how.deviation /= std::sqrt(2.0 * static_cast<double>(config.layers));
  }
  const DType dtype = role == ParameterRole::router ? wide() : compute;
  return parameters.declare(builder, name, shape, dtype, role, how, unit);
}

NormResult ModelWriter::norm(std::string_view name, Value x, int64_t size, int64_t group,
                             std::optional<Value> residual) {
  std::optional<Value> weight;
  if (config.norm_weights) {
    weight = parameters.declare(builder, name, {size}, wide(), ParameterRole::norm, {.constant = 1},
                                unit);
  }
  const NormOptions options{.kind = config.norm == "layer" ? NormKind::layer : NormKind::rms,
                            .epsilon = config.norm_epsilon,
                            .group = group};
  return tessera::norm(builder, x, weight, options, residual);
}

}  // namespace tessera
