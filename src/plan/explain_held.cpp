#include "plan/explain_held.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "plan/explain_optimizer.h"

namespace tessera {
namespace {

/// One line of the table.
struct Held {
  std::string name;
  std::string dtype;
  std::optional<Shape> whole;  ///< of parameters
  Shape piece;
  Distribution type;
  std::optional<Distribution> gradient;  ///< the main gradient's, of parameters
  std::string updated_by;                ///< the optimizer, of parameters
  int layer = -1;
};

/// Returns the layer that a name such as "layers.3.attention.query" begins with; -1 if there is
/// none.
int layer_of(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  return name.starts_with(kLayers) ? std::stoi(name.substr(kLayers.size())) : -1;
}

/// Returns the distribution of a parameter's main gradient: that of the parameter, but partial on
/// the axes where the gradient of its unit is partial. None if it has no main gradient.
std::optional<Distribution> gradient_of(const Mesh& mesh, const ParameterSpec& spec,
                                        const ParameterUnit& unit) {
  if (!unit.has_gradients()) return std::nullopt;
  Distribution result = spec.distribution;
  for (const Axis axis : mesh.of_view(result.view())) {
    const TypeOnAxis type = unit.gradient_distribution.on(axis);
    if (type.placement == Placement::partial) result = result.with(axis, type);
  }
  return result;
}

std::vector<Held> held(const StepPlan& plan) {
  const Chunk& chunk = plan.programs.chunks.front();
  const Mesh& mesh = chunk.program.mesh();
  std::vector<Held> result;
  for (const ParameterSpec& spec : chunk.parameters.specs()) {
    const auto unit = static_cast<size_t>(spec.unit_index);
    const auto optimizer = optimizer_of(plan, spec);
    result.push_back({.name = spec.name,
                      .dtype = std::string(dtype_name(spec.dtype)),
                      .whole = spec.shape,
                      .piece = spec.piece_shape,
                      .type = spec.distribution,
                      .gradient = gradient_of(mesh, spec, chunk.parameters.units()[unit]),
                      .updated_by = optimizer ? std::string(word(*optimizer)) : "",
                      .layer = layer_of(spec.name)});
  }
  std::vector<Value> inputs{chunk.batch.tokens, chunk.batch.targets, chunk.batch.positions};
  if (chunk.batch.document_starts) inputs.push_back(*chunk.batch.document_starts);
  for (const Value input : inputs) {
    const ValueInfo& info = chunk.program.info(input);
    result.push_back({.name = info.name,
                      .dtype = std::string(dtype_name(info.spec.dtype)),
                      .whole = std::nullopt,
                      .piece = info.spec.shape,
                      .type = info.spec.distribution,
                      .gradient = std::nullopt,
                      .updated_by = {}});
  }
  return result;
}

}  // namespace

std::string type_of_ranks(const Mesh& mesh, Distribution type) {
  for (const Axis axis : mesh.of_view(type.view())) {
    if (mesh.size(axis) == 1) type = type.with(axis, invariant());
  }
  return type.text(mesh);
}

std::string held_table(const StepPlan& plan, int64_t first_mixture, bool all_layers) {
  const Mesh mesh = plan.mesh_rank().mesh;
  Table table({"held", "whole", "here", "type", "main gradient", "updated by"});
  for (const Held& value : held(plan)) {
    if (!all_layers && value.layer > 0 && value.layer != first_mixture) continue;
    table.add({value.name, value.whole ? value.whole->text() : "input",
               fmt::format("{} {}", value.dtype, value.piece.text()),
               type_of_ranks(mesh, value.type),
               value.gradient ? type_of_ranks(mesh, *value.gradient) : "", value.updated_by});
  }
  return table.text();
}

nlohmann::ordered_json held_json(const StepPlan& plan) {
  const Mesh mesh = plan.mesh_rank().mesh;
  nlohmann::ordered_json result = nlohmann::ordered_json::array();
  for (const Held& value : held(plan)) {
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

int64_t optimizer_bytes(const StepPlan& plan) {
  std::set<std::string> names;
  for (const ParameterUnit& unit : plan.programs.chunks.front().parameters.units()) {
    names.insert({first_moment_name(unit), second_moment_name(unit)});
    if (rounds(unit)) names.insert(master_name(unit));
  }
  int64_t bytes = 0;
  for (const ValueInfo& value : plan.programs.update.program.values()) {
    if (value.kind == ValueKind::state && names.contains(value.name)) bytes += value.spec.bytes();
  }
  return bytes;
}

int64_t elements_on_rank(const StepPlan& plan) {
  int64_t elements = 0;
  for (const ParameterSpec& spec : plan.programs.chunks.front().parameters.specs()) {
    elements += spec.piece_shape.elements();
  }
  return elements;
}

}  // namespace tessera
