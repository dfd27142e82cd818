#include "ops/collective/unit_pieces.h"

#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "device/vendor.h"
#include "ops/collective/gather_units.h"
#include "ops/collective/version_kernels.h"
#include "ops/elementwise/elementwise.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Inputs: units that each rank stores whole. Outputs: the same memory, whose gradients are reduced
/// in each run.
class UseStoredUnits final : public Operation {
 public:
  UseStoredUnits(std::vector<UnitPieces> units, std::vector<Wire> wires, double error_feedback)
      : units_(std::move(units)), wires_(std::move(wires)), error_feedback_(error_feedback) {}
  std::string_view name() const override { return "use_stored_units"; }
  std::string labels(std::span<const Spec> inputs) const override {
    std::string names;
    for (size_t i = 0; i < inputs.size(); ++i)
      names += fmt::format("{}~w{}", i == 0 ? "" : ", ", i);
    std::string outputs = names;
    std::erase(outputs, '~');
    return names + " -> " + outputs;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return {inputs.begin(), inputs.end()};
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand> inputs) const override {
    std::vector<Distribution> result;
    for (const TypedOperand& input : inputs) result.push_back(input.spec.distribution);
    return result;
  }
  bool takes_wide_gradients() const override { return true; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int output) const override {
    return View{.input = output, .retyped = true, .elided = true};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    for (size_t i = 0; i < units_.size(); ++i) {
      if (!output_gradients[i]) continue;
      reduce_gradient(builder, output_gradients[i], self.inputs[i], units_[i].gradients, wires_[i],
                      error_feedback_);
    }
    return std::vector<Value>(self.inputs.size());
  }
  void run(const Execution&) const override {}

 private:
  std::vector<UnitPieces> units_;
  std::vector<Wire> wires_;  // of the gradients, by unit
  double error_feedback_;
};

/// Adds one to a state of i32 [1].
class AdvanceVersion final : public Operation {
 public:
  std::string_view name() const override { return "advance_version"; }
  std::string labels(std::span<const Spec>) const override { return "-> += ?v"; }
  std::vector<int> updated_inputs() const override { return {0}; }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    return std::vector<Distribution>{};
  }
  std::vector<Spec> infer(std::span<const Spec>) const override { return {}; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  void run(const Execution& execution) const override {
    const Tensor& version = execution.inputs[0];
    if (execution.stream == nullptr) {
      ++version.data<int32_t>()[0];
      return;
    }
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      advance_version_device<Vendor>(version.pointer<int32_t>(), *execution.stream);
    });
  }
};

/// Some of the units of use_cut_units(): those that one node takes.
struct ChosenUnits {
  std::vector<size_t> indices;
  std::vector<UnitPieces> pieces;
  std::vector<Value> stored;
  std::vector<bool> may_be_quantised;
  std::string names;

  void add(size_t index, const CutUnit& unit) {
    indices.push_back(index);
    pieces.push_back(unit.pieces);
    stored.push_back(unit.stored);
    may_be_quantised.push_back(unit.may_be_quantised);
    names += (names.empty() ? "" : ", ") + unit.name;
  }
};

/// Appends the gather of units of which each rank stores a piece.
std::vector<Value> gather_units(Builder& builder, const ChosenUnits& units,
                                const CutUnitOptions& options, Value version) {
  const Program& program = builder.program();
  std::vector<DType> dtypes;
  for (const Value stored : units.stored) dtypes.push_back(builder.spec(stored).dtype);
  const bool has_copies = version && options.gathers_again && units.pieces[0].secondary;
  std::vector<Value> inputs = units.stored;
  if (has_copies) {
    inputs.push_back(version);
    for (size_t i = 0; i < units.pieces.size(); ++i) {
      const ValueInfo& stored = program.info(units.stored[i]);
      TESSERA_CHECK(units.pieces[i].secondary, "'{}' has no second copy, as other units of {} have",
                    stored.name, units.names);
      Distribution whole = stored.spec.distribution;
      for (const Axis axis : units.pieces[i].weights.axes) whole = whole.with(axis, invariant());
      const Wire wire = wire_of_unit(options.secondary_wire, units.may_be_quantised[i]);
      const Spec spec = copy_spec(program, *units.pieces[i].secondary,
                                  {{units.pieces[i].weights.elements()}, dtypes[i], whole}, wire);
      inputs.push_back(builder.state(fmt::format("{}{}", kSecondCopyPrefix, stored.name), spec));
    }
    inputs.push_back(builder.state("secondary_version:" + units.names, builder.spec(version)));
  }
  return builder.apply(
      make_gather_units(program, units.pieces, dtypes, units.may_be_quantised, options, has_copies),
      std::move(inputs));
}

}  // namespace

std::vector<Value> use_cut_units(Builder& builder, std::span<const CutUnit> units,
                                 const CutUnitOptions& options, Value version) {
  ChosenUnits gathered, whole;
  for (size_t i = 0; i < units.size(); ++i) {
    (units[i].pieces.weights.is_cut() ? gathered : whole).add(i, units[i]);
  }
  std::vector<Value> result(units.size());
  const auto note = [&](const ChosenUnits& chosen, const std::vector<Value>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      result[chosen.indices[i]] = outputs[i];
      const std::string& name = units[chosen.indices[i]].name;
      builder.name_as(outputs[i], "whole:" + name);
      builder.sum_in_frame(outputs[i], [&builder, name](const Spec& spec) {
        const Value gradient = zeros(builder, spec);
        builder.name_as(gradient, "frame_gradient:" + name);
        return gradient;
      });
    }
  };
  if (!gathered.indices.empty()) {
    const std::vector<Value> outputs = gather_units(builder, gathered, options, version);
    note(gathered, outputs);
    for (const Value output : outputs) {
      if (!options.gathers_again) builder.keep(output, Keep::layer);
    }
  }
  if (!whole.indices.empty()) {
    std::vector<Wire> wires;
    for (const bool may : whole.may_be_quantised) {
      wires.push_back(wire_of_unit(options.gradients_wire, may));
    }
    note(whole, builder.apply(std::make_shared<UseStoredUnits>(whole.pieces, std::move(wires),
                                                               options.error_feedback),
                              whole.stored));
  }
  return result;
}

void advance_version(Builder& builder, Value version) {
  builder.apply(std::make_shared<AdvanceVersion>(), {version});
}

}  // namespace tessera
