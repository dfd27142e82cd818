#include "inference/rank_weights.h"

#include <set>

#include "base/error.h"
#include "comm/tensor_piece.h"

namespace tessera {
namespace {

/// Returns whether a rank has the whole parameter, at the same offset of its unit as in the model.
bool same_layout(const ParameterSpec& rank_spec, const ParameterSpec& model_spec) {
  return rank_spec.piece_shape == model_spec.shape &&
         rank_spec.unit_offset == model_spec.unit_offset;
}

}  // namespace

GivenTensors shared_weights(const LoadedModel& model, const ParameterList& rank_parameters) {
  std::set<int> apart;  // units with a parameter that differs in extent or offset
  for (size_t i = 0; i < rank_parameters.specs().size(); ++i) {
    const ParameterSpec& spec = rank_parameters.specs()[i];
    if (!same_layout(spec, model.parameters.specs()[i])) apart.insert(spec.unit_index);
  }
  GivenTensors shared;
  for (int i = 0; i < std::ssize(rank_parameters.units()); ++i) {
    const ParameterUnit& unit = rank_parameters.units()[static_cast<size_t>(i)];
    const auto found = model.weights.find(unit.name);
    if (apart.contains(i) || found == model.weights.end()) continue;
    if (found->second.elements() == unit.elements) shared.emplace(unit.name, found->second);
  }
  return shared;
}

GivenTensors rank_weights(const LoadedModel& model, const ParameterList& rank_parameters,
                          const MeshRank& mesh_rank) {
  TESSERA_CHECK(rank_parameters.specs().size() == model.parameters.specs().size(),
                "{} parameters for a model of {}", rank_parameters.specs().size(),
                model.parameters.specs().size());
  const GivenTensors shared = shared_weights(model, rank_parameters);
  GivenTensors weights = shared;
  for (size_t i = 0; i < rank_parameters.specs().size(); ++i) {
    const ParameterSpec& spec = rank_parameters.specs()[i];
    const ParameterUnit& unit = rank_parameters.units()[static_cast<size_t>(spec.unit_index)];
    if (shared.contains(unit.name)) continue;
    const auto& memory =
        weights.try_emplace(unit.name, Shape{unit.elements}, unit.dtype).first->second;
    const TensorPiece piece(mesh_rank.mesh, spec.distribution, spec.shape, mesh_rank.rank);
    piece.take(model.weight(i), memory.view(spec.unit_offset, spec.piece_shape));
  }
  return weights;
}

}  // namespace tessera
