// The parts that all layers share. The members of ModelWriter do one of three things:
//
// - matrix(), vector() and norm_weight() declare a weight: they add it to ParameterList under the
//   builder's scope. over_tensor(dim) splits it evenly, and over_tensor(dim, extent) nearly evenly
//   where the ranks need not divide the extent.
// - gather_positions() and scatter_positions() convert the type on the tensor axis, sharded to
//   replicated before a column-split linear map and partial to sharded after a row-split one: an
//   all-gather and a reduce-scatter, each of which is the other's backward pass.
// - norm() and its variants write the family's norm.
//
// A weight is declared with its global shape and its distribution. It becomes a view of its unit's
// flat memory, in the shape of this rank's piece. A weight is invariant on the axes that split the
// tokens. use_like() retypes it as replicated there, so that its gradient is partial: a sum over
// the ranks of these axes.

#include "model/model_writer.h"

#include <cmath>

#include "base/error.h"
#include "ops/collective/convert.h"
#include "ops/norm/split_norm.h"

namespace tessera {

TokenDistribution distribute_tokens(const Mesh& mesh, int64_t sequences) {
  TokenDistribution result;
  int64_t ranks = 1;
  const std::span<const Axis> levels = mesh.data();
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {  // the outermost first
    result.tokens = result.tokens.with(*level, sharded(0));
    ranks *= mesh.size(*level);
  }
  if (sequences % ranks != 0) {
    throw Error("{} sequences do not divide over {} data-parallel ranks", sequences, ranks);
  }
  // Tokens are sequences × positions. Positions are the factor 1, and their split repeats once for
  // each of the rank's sequences.
  const int64_t own_sequences = sequences / ranks;
  result.tokens = result.tokens.with(
      mesh.context(), sharded(0, {.kind = PieceKind::zigzag}, /*factor=*/1, own_sequences));
  result.positions = sharded(0, {}, /*factor=*/1, own_sequences);
  return result;
}

Value ModelWriter::matrix(std::string_view name, const Shape& shape,
                          const Distribution& distribution, ParameterRole role, double divisor) {
  const Initialization initialization{.deviation = config.initialization_deviation / divisor,
                                      .cutoff = config.initialization_cutoff};
  const bool routes = role == ParameterRole::router || role == ParameterRole::router_hidden;
  const DType dtype = routes ? wide() : compute;
  return parameters.declare(builder, name, shape, distribution, dtype, role, initialization, unit);
}

Value ModelWriter::output_matrix(std::string_view name, const Shape& shape,
                                 const Distribution& distribution, ParameterRole role) {
  const bool scaled = config.initialization == InitializationRule::scaled;
  return matrix(name, shape, distribution, role,
                scaled ? std::sqrt(2.0 * static_cast<double>(config.layers)) : 1);
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

NormResult ModelWriter::norm_of_sum(std::string_view name, Value sum, int64_t size) {
  return tessera::norm_of_sum(builder, sum, norm_weight(name, size, sum), norm_options(0));
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
