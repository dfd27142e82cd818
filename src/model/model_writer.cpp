#include "model/model_writer.h"

#include <cmath>

#include "ops/collective/convert.h"
#include "ops/norm/split_norm.h"

namespace tessera {

Value ModelWriter::matrix(std::string_view name, const Shape& shape,
                          const Distribution& distribution, ParameterRole role) {
  return declare_matrix(name, shape, distribution, role, config.initialization_deviation);
}

Value ModelWriter::output_matrix(std::string_view name, const Shape& shape,
                                 const Distribution& distribution, ParameterRole role) {
  double deviation = config.initialization_deviation;
  if (config.initialization == InitializationRule::scaled) {
    deviation /= std::sqrt(2.0 * static_cast<double>(config.layers));
  }
  return declare_matrix(name, shape, distribution, role, deviation);
}

Value ModelWriter::declare_matrix(std::string_view name, const Shape& shape,
                                  const Distribution& distribution, ParameterRole role,
                                  double deviation) {
  const Initialization how{.deviation = deviation, .cutoff = config.initialization_cutoff};
  const bool routes = role == ParameterRole::router || role == ParameterRole::router_hidden;
  const DType dtype = routes ? wide() : compute;
  return parameters.declare(builder, name, shape, distribution, dtype, role, how, unit);
}

Value ModelWriter::vector(std::string_view name, int64_t size, double constant,
                          const Distribution& distribution) {
  return parameters.declare(builder, name, {size}, distribution, wide(), ParameterRole::vector,
                            {.constant = constant}, unit);
}

Value ModelWriter::gather_positions(Value stream) {
  return convert(builder, stream, mesh().tensor(), Placement::sharded, replicated());
}

Value ModelWriter::scatter_positions(Value partial) {
  return convert(builder, partial, mesh().tensor(), Placement::partial, layout.positions);
}

NormResult ModelWriter::norm(std::string_view name, Value x, int64_t size, int64_t group,
                             std::optional<Value> residual) {
  return tessera::norm(builder, x, norm_weight(name, size, x), norm_options(group), residual);
}

Value ModelWriter::norm_and_rotary(std::string_view name, Value x, int64_t size, int64_t group,
                                   Value table, int64_t head_dim) {
  return tessera::norm_and_rotary(builder, x, norm_weight(name, size, x), norm_options(group),
                                  table, head_dim);
}

Value ModelWriter::split_norm(std::string_view name, Value x, int64_t size) {
  std::optional<Value> weight = norm_weight(name, size, x);
  if (weight)
    weight = convert(builder, *weight, mesh().tensor(), Placement::replicated, sharded(0));
  return tessera::split_norm(builder, x, weight, mesh().tensor(), norm_options(0));
}

std::optional<Value> ModelWriter::norm_weight(std::string_view name, int64_t size, Value x) {
  if (!config.norm_weights) return {};
  const Value weight = parameters.declare(builder, name, {size}, {}, wide(), ParameterRole::norm,
                                          {.constant = 1}, unit);
  return use_like(builder, weight, x);
}

NormOptions ModelWriter::norm_options(int64_t group) const {
  return {.kind = config.norm, .epsilon = config.norm_epsilon, .group = group};
}

}  // namespace tessera
