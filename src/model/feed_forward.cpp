// Writes the gated feed-forward block, down(activation(gate(x)) ⊙ up(x)).
//
// The comments below give the shape that a value has without ranks, and its type on the tensor axis
// (program/derive.cpp has the rules). A linear map has the labels `~t i, ~o i -> t o`. If the
// weight is split along o, so is the result. If both operands are split along i, the result is
// partial. On the other axes the tokens t are split, and the weights are invariant. use_like(w, x)
// makes w replicated on each axis where w is invariant and x is not, and other axes stay as they
// are. The gradients of the weights thus become sums over the ranks. `down` meets `activated`, not
// x; but these differ on the tensor axis alone, where `down` is split, so x serves for it too.

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
  x = writer.gather_positions(x);  // [tokens, hidden]: sharded (positions) -> replicated
  const auto column_split = [&](std::string_view matrix) {  // [inner, hidden]: sharded (inner)
    return use_like(builder, writer.matrix(matrix, {inner, hidden}, writer.over_tensor(0, inner)),
                    x);
  };
  const Value weights[] = {column_split("gate"), column_split("up")};
  // [tokens, inner]: sharded (inner)
  const std::vector<Value> projections = linears(builder, x, weights);
  const Value activated =
      gated_activation(builder, projections[0], projections[1], config.activation);
  // [hidden, inner]: sharded (inner)
  const Value down = writer.output_matrix("down", {hidden, inner}, writer.over_tensor(1, inner));
  // [tokens, hidden]: partial -> sharded (positions)
  return writer.scatter_positions(linear(builder, activated, use_like(builder, down, x)));
}

}  // namespace tessera
