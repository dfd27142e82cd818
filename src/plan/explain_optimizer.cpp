#include "plan/explain_optimizer.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"

namespace tessera {
namespace {

/// The parameters that one optimizer updates.
struct Updated {
  int64_t tensors = 0;
  int64_t elements = 0;
  std::vector<std::string> names;

  void add(const ParameterSpec& spec) {
    ++tensors;
    elements += spec.shape.elements();
    const std::string name = without_layer(spec.name);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }

 private:
  /// Returns "layers.3.attention.query" without "layers.3.".
  static std::string without_layer(const std::string& name) {
    constexpr std::string_view kLayers = "layers.";
    if (!name.starts_with(kLayers)) return name;
    return name.substr(name.find('.', kLayers.size()) + 1);
  }
};

}  // namespace

std::optional<OptimizerName> optimizer_of(const StepPlan& plan, const ParameterSpec& parameter) {
  const auto unit = static_cast<size_t>(parameter.unit_index);
  if (!plan.programs.chunks.front().parameters.units()[unit].has_gradients()) return {};
  return plan.programs.update.updated_by[unit];
}

std::string optimizer_table(const StepPlan& plan) {
  Updated muon, adamw;
  for (const ParameterSpec& spec : plan.programs.chunks.front().parameters.specs()) {
    const auto optimizer = optimizer_of(plan, spec);
    if (optimizer) (optimizer == OptimizerName::muon ? muon : adamw).add(spec);
  }
  if (muon.tensors == 0) return "";
  Table table({"updated by", "tensors", "elements", "which"});
  const auto row = [&](OptimizerName name, const Updated& updated) {
    table.add({std::string(word(name)), fmt::format("{}", updated.tensors),
               format_count(static_cast<double>(updated.elements)), join(updated.names, ", ")});
  };
  row(OptimizerName::muon, muon);
  row(OptimizerName::adamw, adamw);
  return table.text();
}

}  // namespace tessera
