#include "inference/rank_weights.h"

#include <set>

#include "base/error.h"
#include "comm/tensor_piece.h"

namespace tessera {
namespace {

/// Whether a parameter lies in a rank's unit as it does in the model's.
bool lies_alike(const ParameterSpec& of_rank, const ParameterSpec& of_model) {
  return of_rank.piece_shape == of_model.shape && of_rank.unit_offset == of_model.unit_offset;
}

}  // namespace

GivenTensors shared_weights(const LoadedModel& model, const ParameterList& of_rank) {
  std::set<int> apart;  // units that have a parameter which lies otherwise
  for (size_t i = 0; i < of_rank.specs().size(); ++i) {
    const ParameterSpec& spec = of_rank.specs()[i];
    if (!lies_alike(spec, model.parameters.specs()[i])) apart.insert(spec.unit_index);
  }
  GivenTensors shared;
  for (int i = 0; i < std::ssize(of_rank.units()); ++i) {
    const ParameterUnit& unit = of_rank.units()[static_cast<size_t>(i)];
    const auto found = model.weights.find(unit.name);
    if (apart.contains(i) || found == model.weights.end()) continue;
    if (found->second.elements() == unit.elements) shared.emplace(unit.name, found->second);
  }
  return shared;
}

GivenTensors rank_weights(const LoadedModel& model, const ParameterList& of_rank,
                          const MeshRank& place) {
  TESSERA_CHECK(of_rank.specs().size() == model.parameters.specs().size(),
                "{} parameters for a model of {}", of_rank.specs().size(),
                model.parameters.specs().size());
  const GivenTensors shared = shared_weights(model, of_rank);
  GivenTensors weights = shared;
  for (size_t i = 0; i < of_rank.specs().size(); ++i) {
    const ParameterSpec& spec = of_rank.specs()[i];
    const ParameterUnit& unit = of_rank.units()[static_cast<size_t>(spec.unit_index)];
    if (shared.contains(unit.name)) continue;
    const auto& memory =
        weights.try_emplace(unit.name, Shape{unit.elements}, unit.dtype).first->second;
    const TensorPiece piece(place.mesh, spec.distribution, spec.shape, place.rank);
    piece.take(model.weight(i), memory.view(spec.unit_offset, spec.piece_shape));
  }
  return weights;
}

}  // namespace tessera
