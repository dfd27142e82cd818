// The tensors that a rank keeps, from its first chunk: parameters with their main gradients and
// optimizers, and the inputs of a micro-batch. held_tensors() collects them, and held_table() and
// held_json() show them. The other functions add up elements and bytes.

#include "plan/explain_held.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace tessera {
namespace {

/// One row of held_table(): a parameter, or an input.
struct HeldTensor {
  std::string name;
  std::string dtype;
  std::optional<Shape> whole;  ///< none for inputs
  Shape piece;
  Distribution type;
  std::optional<Distribution> gradient;  ///< the main gradient's, of parameters
  std::string updated_by;                ///< the optimizer, of parameters
  int layer = -1;
};

constexpr std::string_view kLayers = "layers.";  // of names such as "layers.3.attention.query"

/// Returns the layer that a parameter's name begins with; -1 if there is none.
int layer_of(const std::string& name) {
  return name.starts_with(kLayers) ? std::stoi(name.substr(kLayers.size())) : -1;
}

/// Returns the distribution of a parameter's main gradient: the parameter's own, but partial on the
/// axes where the gradient of its unit is partial. None if it has no main gradient.
std::optional<Distribution> gradient_of(const Mesh& mesh, const ParameterSpec& spec,
                                        const ParameterUnit& unit) {
  if (!unit.has_gradients()) return std::nullopt;
  Distribution result = spec.distribution;
  for (const Axis axis : mesh.axes_of(result.view())) {
    const TypeOnAxis type = unit.gradient_distribution.on(axis);
    if (type.placement == Placement::partial) result = result.with(axis, type);
  }
  return result;
}

/// Returns the optimizer that updates a parameter; none for a router's balancing biases.
std::optional<OptimizerName> optimizer_of(const StepPlan& plan, const ParameterSpec& parameter) {
  const auto unit = static_cast<size_t>(parameter.unit_index);
  if (!plan.programs.model.parameters.units()[unit].has_gradients()) return {};
  return plan.programs.update.updated_by[unit];
}

/// Returns whether the plan's rank holds a parameter: its stage has the unit.
bool is_held(const StepPlan& plan, const ParameterSpec& spec) {
  const MeshRank rank = plan.mesh_rank();
  const auto unit = static_cast<size_t>(spec.unit_index);
  return plan.programs.model.parameters.units()[unit].on_stage(rank.mesh.stage(rank.rank));
}

/// Adds the inputs that a chunk gets from a batch.
void add_inputs(const Chunk& chunk, std::vector<HeldTensor>& held) {
  std::vector<Value> inputs{chunk.batch.tokens, chunk.batch.targets, chunk.batch.positions};
  if (chunk.batch.document_starts) inputs.push_back(*chunk.batch.document_starts);
  for (const Value input : inputs) {
    if (!input) continue;
    const ValueInfo& info = chunk.program.info(input);
    held.push_back({.name = info.name,
                    .dtype = std::string(dtype_name(info.spec.dtype)),
                    .whole = std::nullopt,
                    .piece = info.spec.shape,
                    .type = info.spec.distribution,
                    .gradient = std::nullopt,
                    .updated_by = {}});
  }
}

std::vector<HeldTensor> held_tensors(const StepPlan& plan) {
  const Mesh mesh = plan.mesh_rank().mesh;
  const ParameterList& parameters = plan.programs.model.parameters;
  std::vector<HeldTensor> result;
  for (const ParameterSpec& spec : parameters.specs()) {
    if (!is_held(plan, spec)) continue;
    const auto unit = static_cast<size_t>(spec.unit_index);
    const auto optimizer = optimizer_of(plan, spec);
    result.push_back({.name = spec.name,
                      .dtype = std::string(dtype_name(spec.dtype)),
                      .whole = spec.shape,
                      .piece = spec.piece_shape,
                      .type = spec.distribution,
                      .gradient = gradient_of(mesh, spec, parameters.units()[unit]),
                      .updated_by = optimizer ? std::string(word(*optimizer)) : "",
                      .layer = layer_of(spec.name)});
  }
  for (const Chunk& chunk : plan.programs.chunks()) add_inputs(chunk, result);
  return result;
}

/// The parameters that one optimizer updates.
struct UpdatedParameters {
  int64_t tensors = 0;
  int64_t elements = 0;
  std::vector<std::string> names;

  void add(const ParameterSpec& spec) {
    ++tensors;
    elements += spec.shape.elements();
    std::string name = spec.name;  // without the layer: "attention.query"
    if (name.starts_with(kLayers)) name.erase(0, name.find('.', kLayers.size()) + 1);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
};

}  // namespace

std::string distribution_text(const Mesh& mesh, Distribution type) {
  for (const Axis axis : mesh.axes_of(type.view())) {
    if (mesh.size(axis) == 1) type = type.with(axis, invariant());
  }
  return type.text(mesh);
}

std::string held_table(const StepPlan& plan, int64_t first_mixture, bool all_layers) {
  const Mesh mesh = plan.mesh_rank().mesh;
  Table table({"held", "whole", "here", "type", "main gradient", "updated by"});
  for (const HeldTensor& value : held_tensors(plan)) {
    if (!all_layers && value.layer > 0 && value.layer != first_mixture) continue;
    table.add({value.name, value.whole ? value.whole->text() : "input",
               fmt::format("{} {}", value.dtype, value.piece.text()),
               distribution_text(mesh, value.type),
               value.gradient ? distribution_text(mesh, *value.gradient) : "", value.updated_by});
  }
  return table.text();
}

nlohmann::ordered_json held_json(const StepPlan& plan) {
  const Mesh mesh = plan.mesh_rank().mesh;
  nlohmann::ordered_json result = nlohmann::ordered_json::array();
  for (const HeldTensor& value : held_tensors(plan)) {
    nlohmann::ordered_json json{{"name", value.name},
                                {"dtype", value.dtype},
                                {"here", value.piece.text()},
                                {"type", value.type.text(mesh)}};
    if (value.whole) json["whole"] = value.whole->text();
    if (value.gradient) json["main_gradient"] = value.gradient->text(mesh);
    if (!value.updated_by.empty()) json["updated_by"] = value.updated_by;
    result.push_back(json);
  }
  return result;
}

std::string optimizer_table(const StepPlan& plan) {
  UpdatedParameters muon, adamw;
  for (const ParameterSpec& spec : plan.programs.model.parameters.specs()) {
    const auto optimizer = is_held(plan, spec) ? optimizer_of(plan, spec) : std::nullopt;
    if (optimizer) (optimizer == OptimizerName::muon ? muon : adamw).add(spec);
  }
  if (muon.tensors == 0) return "";
  Table table({"updated by", "tensors", "elements", "which"});
  const auto row = [&](OptimizerName name, const UpdatedParameters& updated) {
    table.add({std::string(word(name)), fmt::format("{}", updated.tensors),
               format_count(static_cast<double>(updated.elements)), join(updated.names, ", ")});
  };
  row(OptimizerName::muon, muon);
  row(OptimizerName::adamw, adamw);
  return table.text();
}

std::set<std::string> optimizer_states(const StepPlan& plan) {
  std::set<std::string> names;
  for (const ParameterUnit& unit : plan.programs.model.parameters.units()) {
    names.insert({master_name(unit), first_moment_name(unit), second_moment_name(unit)});
  }
  return names;
}

int64_t optimizer_bytes(const StepPlan& plan) {
  const std::set<std::string> names = optimizer_states(plan);
  int64_t bytes = 0;
  for (const ValueInfo& value : plan.programs.update.program.values()) {
    if (value.kind == ValueKind::state && names.contains(value.name)) bytes += value.spec.bytes();
  }
  return bytes;
}

int64_t elements_on_rank(const StepPlan& plan) {
  int64_t elements = 0;
  for (const ParameterSpec& spec : plan.programs.model.parameters.specs()) {
    if (is_held(plan, spec)) elements += spec.piece_shape.elements();
  }
  return elements;
}

}  // namespace tessera
