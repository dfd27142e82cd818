#include "model/feed_forward.h"

#include "ops/activation/activation.h"
#include "ops/linear/linear.h"

namespace tessera {

Value feed_forward(ModelWriter& writer, std::string_view name, int64_t inner, Value x) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const auto scope = builder.scope(name, Block::feed_forward);
  const int64_t hidden = config.hidden_size;
  const Value weights[] = {writer.matrix("gate", {inner, hidden}),
                           writer.matrix("up", {inner, hidden})};
  const std::vector<Value> projections = linears(builder, x, weights);
  const Value activated = gated_activation(builder, projections[0], projections[1],
                                           config.activation);  // [tokens, inner]
  return linear(builder, activated, writer.output_matrix("down", {hidden, inner}));
}

}  // namespace tessera
