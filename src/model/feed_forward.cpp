#include "model/feed_forward.h"

#include "ops/activation/activation.h"
#include "ops/collective/convert.h"
#include "ops/linear/linear.h"

namespace tessera {

Value feed_forward(ModelWriter& writer, std::string_view name, int64_t inner, Value x) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const auto scope = builder.scope(name, Block::feed_forward);
  const int64_t hidden = config.hidden_size;
  x = writer.gather_positions(x);
  const auto column_split = [&](std::string_view matrix) {
    return use_like(builder, writer.matrix(matrix, {inner, hidden}, writer.over_tensor(0, inner)),
                    x);
  };
  const Value weights[] = {column_split("gate"), column_split("up")};
  const std::vector<Value> projections = linears(builder, x, weights);
  const Value activated = gated_activation(builder, projections[0], projections[1],
                                           config.activation);  // [tokens, inner]
  const Value down = writer.output_matrix("down", {hidden, inner}, writer.over_tensor(1, inner));
  return writer.scatter_positions(linear(builder, activated, use_like(builder, down, x)));
}

}  // namespace tessera
