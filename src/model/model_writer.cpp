#include "model/model_writer.h"

#include <cmath>

namespace tessera {

Value ModelWriter::matrix(std::string_view name, const Shape& shape, ParameterRole role,
                          const Distribution& distribution) {
  return declare_matrix(name, shape, role, config.initialization_deviation, distribution);
}

Value ModelWriter::output_matrix(std::string_view name, const Shape& shape, ParameterRole role,
                                 const Distribution& distribution) {
  double deviation = config.initialization_deviation;
  if (config.initialization == InitializationRule::scaled) {
    deviation /= std::sqrt(2.0 * static_cast<double>(config.layers));
  }
  return declare_matrix(name, shape, role, deviation, distribution);
}

Value ModelWriter::declare_matrix(std::string_view name, const Shape& shape, ParameterRole role,
                                  double deviation, const Distribution& distribution) {
  const Initialization how{.deviation = deviation, .cutoff = config.initialization_cutoff};
  const DType dtype = role == ParameterRole::router ? wide() : compute;
  return parameters.declare(builder, name, shape, distribution, dtype, role, how, unit);
}

NormResult ModelWriter::norm(std::string_view name, Value x, int64_t size, int64_t group,
                             std::optional<Value> residual) {
  return tessera::norm(builder, x, norm_weight(name, size), norm_options(group), residual);
}

Value ModelWriter::norm_and_rotary(std::string_view name, Value x, int64_t size, int64_t group,
                                   Value table, int64_t head_dim) {
  return tessera::norm_and_rotary(builder, x, norm_weight(name, size), norm_options(group), table,
                                  head_dim);
}

std::optional<Value> ModelWriter::norm_weight(std::string_view name, int64_t size) {
  if (!config.norm_weights) return {};
  return parameters.declare(builder, name, {size}, {}, wide(), ParameterRole::norm, {.constant = 1},
                            unit);
}

NormOptions ModelWriter::norm_options(int64_t group) const {
  return {.kind = config.norm, .epsilon = config.norm_epsilon, .group = group};
}

}  // namespace tessera
