// A rank's programs have the parameters of its stage's chunks, in pieces if ranks share them. They
// are found in the whole model by their names. Two chunks may have the same unit: the table of a
// tied head.

#include "inference/rank_weights.h"

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "comm/tensor_piece.h"

namespace tessera {
namespace {

/// The parameters of a whole model by name.
class ParametersByName {
 public:
  explicit ParametersByName(const LoadedModel& model) : model_(model) {
    const std::vector<ParameterSpec>& specs = model.parameters.specs();
    for (size_t i = 0; i < specs.size(); ++i) indices_.emplace(specs[i].name, i);
  }

  const ParameterSpec& spec(const std::string& name) const {
    return model_.parameters.specs()[index(name)];
  }
  Tensor weight(const std::string& name) const { return model_.weight(index(name)); }

 private:
  size_t index(const std::string& name) const {
    const auto found = indices_.find(name);
    TESSERA_CHECK(found != indices_.end(), "the model has no parameter {}", name);
    return found->second;
  }

  const LoadedModel& model_;
  std::map<std::string_view, size_t> indices_;
};

/// Calls visit(spec, unit) for each parameter of each chunk.
template <typename Visit>
void for_each_parameter(const EvaluationPasses& passes, Visit&& visit) {
  for (const EvaluationProgram& chunk : passes.chunks) {
    const std::vector<ParameterUnit>& units = chunk.parameters.units();
    for (const ParameterSpec& spec : chunk.parameters.specs()) {
      visit(spec, units[static_cast<size_t>(spec.unit_index)]);
    }
  }
}

GivenTensors shared_weights(const LoadedModel& model, const ParametersByName& parameters,
                            const EvaluationPasses& passes) {
  std::set<std::string> copied;  // units with a parameter that differs in extent or offset
  for_each_parameter(passes, [&](const ParameterSpec& spec, const ParameterUnit& unit) {
    const ParameterSpec& whole = parameters.spec(spec.name);
    const bool is_whole = spec.piece_shape == whole.shape && spec.unit_offset == whole.unit_offset;
    if (!is_whole) copied.insert(unit.name);
  });
  GivenTensors shared;
  for_each_parameter(passes, [&](const ParameterSpec& /*spec*/, const ParameterUnit& unit) {
    const auto found = model.weights.find(unit.name);
    if (copied.contains(unit.name) || found == model.weights.end()) return;
    // The model's unit is longer if its last parameters are split: the rank's are in another unit.
    if (found->second.elements() == unit.elements) shared.emplace(unit.name, found->second);
  });
  return shared;
}

}  // namespace

GivenTensors shared_weights(const LoadedModel& model, const EvaluationPasses& passes) {
  return shared_weights(model, ParametersByName(model), passes);
}

GivenTensors rank_weights(const LoadedModel& model, const EvaluationPasses& passes) {
  const ParametersByName parameters(model);
  const GivenTensors shared = shared_weights(model, parameters, passes);
  const MeshRank mesh_rank = passes.mesh_rank();
  GivenTensors weights = shared;
  for_each_parameter(passes, [&](const ParameterSpec& spec, const ParameterUnit& unit) {
    if (shared.contains(unit.name)) return;
    const auto& memory =
        weights.try_emplace(unit.name, Shape{unit.elements}, unit.dtype).first->second;
    const TensorPiece piece(mesh_rank.mesh, spec.distribution, spec.shape, mesh_rank.rank);
    piece.copy_from(parameters.weight(spec.name), memory.view(spec.unit_offset, spec.piece_shape));
  });
  return weights;
}

}  // namespace tessera
