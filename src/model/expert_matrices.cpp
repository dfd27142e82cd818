#include "model/expert_matrices.h"

#include "ops/activation/activation.h"
#include "ops/collective/convert.h"
#include "ops/moe/grouped_linear.h"

namespace tessera {

ExpertMatrices declare_experts(ModelWriter& writer, bool split) {
  const ModelConfig& config = writer.config;
  const Mesh& mesh = writer.mesh();
  const std::string dense_unit = writer.unit;
  writer.unit = dense_unit + ".experts";
  Distribution experts;
  if (split) experts = Distribution(MeshView::expert).with(mesh.expert(), sharded(0));
  const Shape inward{config.experts, config.expert_size, config.hidden_size};
  const Shape outward{config.experts, config.hidden_size, config.expert_size};
  ExpertMatrices matrices{{writer.matrix("gate", inward, experts, ParameterRole::expert),
                           writer.matrix("up", inward, experts, ParameterRole::expert)},
                          writer.output_matrix("down", outward, experts, ParameterRole::expert)};
  writer.unit = dense_unit;
  for (Value* matrix : {&matrices.inward[0], &matrices.inward[1], &matrices.outward}) {
    if (split) *matrix = use(writer.builder, *matrix, mesh.expert_data());
  }
  return matrices;
}

Value apply_experts(ModelWriter& writer, const ExpertMatrices& matrices, Value rows,
                    Value offsets) {
  Builder& builder = writer.builder;
  const std::vector<Value> projections = grouped_linear(builder, rows, matrices.inward, offsets);
  const Value activated =
      gated_activation(builder, projections[0], projections[1], writer.config.activation, offsets);
  return grouped_linear(builder, activated, std::vector{matrices.outward}, offsets)[0];
}

}  // namespace tessera
