#include "ops/collective/unit_pieces.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ops/collective/flat.h"
#include "ops/collective/flat_steps.h"
#include "ops/elementwise/elementwise.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Appends the reduction of a run's gradient of a unit into the main gradient. `frame` is partial
/// on the axes of the pieces.
void reduce_gradient(Builder& builder, Value frame, Value stored, const FlatPieces& pieces,
                     WireFormat wire) {
  const Mesh& mesh = builder.program().mesh();
  std::vector<Axis> axes;  // innermost first, as Mesh lists them
  for (const Axis axis : mesh.axes_of(builder.spec(frame).distribution.view())) {
    if (std::ranges::find(pieces.axes, axis) != pieces.axes.end()) axes.push_back(axis);
  }
  const Value piece = take_piece_of_sum(builder, frame, pieces, /*held=*/0, axes, wire);
  const Spec spec = builder.spec(piece);
  accumulate(builder, builder.declare_main_gradient(stored, spec.shape, spec.distribution), piece);
}

/// The base of the operations that give whole weights of units.
class UseCutUnits : public Operation {
 public:
  UseCutUnits(std::vector<UnitPieces> units, const CutUnitOptions& options)
      : units_(std::move(units)), options_(options) {}
  std::string labels(std::span<const Spec> inputs) const override {
    std::string before, after;
    for (size_t i = 0; i < inputs.size(); ++i) {
      before += fmt::format("{}~p{}!", i == 0 ? "" : ", ", i);
      after += fmt::format("{}w{}", i == 0 ? "" : ", ", i);
    }
    return before + " -> " + after;
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand> inputs) const override {
    std::vector<Distribution> wholes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Distribution whole = inputs[i].spec.distribution;
      for (const Axis axis : units_[i].weights.axes) {
        TESSERA_EXPECT(*this, whole.on(axis) == units_[i].weights.type(), "'{}' is {}; expected {}",
                       inputs[i].name, whole.on(axis).text(), units_[i].weights.type().text());
        whole = whole.with(axis, invariant());
      }
      wholes.push_back(whole);
    }
    return wholes;
  }
  bool takes_wide_gradients() const override { return true; }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    for (size_t i = 0; i < units_.size(); ++i) {
      if (!output_gradients[i]) continue;
      reduce_gradient(builder, output_gradients[i], self.inputs[i], units_[i].gradients,
                      options_.gradients_wire);
    }
    // Nothing is left to be added into the main gradients of the inputs.
    return std::vector<Value>(self.inputs.size());
  }

 protected:
  const std::vector<UnitPieces>& units() const { return units_; }
  const CutUnitOptions& options() const { return options_; }

 private:
  std::vector<UnitPieces> units_;
  CutUnitOptions options_;
};

/// Inputs: this rank's pieces of units. Outputs: the units.
class GatherUnits final : public UseCutUnits {
 public:
  GatherUnits(const Program& program, std::vector<UnitPieces> units, const CutUnitOptions& options)
      : UseCutUnits(std::move(units), options) {
    for (const UnitPieces& unit : this->units()) {
      runs_.push_back(unit.weights.run_of(program.mesh(), program.rank()));
      steps_.push_back(gather_steps(program, unit.weights));
    }
  }
  std::string_view name() const override { return "gather_units"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    std::vector<Spec> wholes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TESSERA_EXPECT(*this, inputs[i].shape == Shape{runs_[i].length}, "{}; expected {} elements",
                     inputs[i].shape.text(), runs_[i].length);
      wholes.push_back({{units()[i].weights.elements()}, inputs[i].dtype, {}});
    }
    return wholes;
  }
  bool cheap_to_repeat() const override { return options().gathers_again; }
  Lane lane() const override { return Lane::network; }
  std::vector<std::vector<Axis>> group_axes() const override {
    std::vector<std::vector<Axis>> groups;
    for (const std::vector<FlatStep>& steps : steps_) std::ranges::copy(groups_of(steps), std::back_inserter(groups));
    return groups;
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    Cost cost{.bytes = operand_bytes(inputs, outputs)};
    for (size_t i = 0; i < steps_.size(); ++i) {
      std::ranges::copy(wire_of(steps_[i], dtype_size(inputs[i].dtype)),
                        std::back_inserter(cost.wire));
    }
    return cost;
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    int64_t bytes = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      bytes = std::max(bytes, steps_workspace(steps_[i], inputs[i].dtype, target));
    }
    return bytes;
  }
  void run(const Execution& execution) const override {
    std::span<Communicator* const> groups = execution.groups;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Tensor& whole = execution.outputs[i];
      copy(execution, execution.inputs[i], whole.view(runs_[i].begin, {runs_[i].length}));
      run_steps(execution, steps_[i], groups.first(steps_[i].size()), whole);
      groups = groups.subspan(steps_[i].size());
    }
  }

 private:
  std::vector<ElementRun> runs_;              // by unit: this rank's piece
  std::vector<std::vector<FlatStep>> steps_;  // by unit
};

/// Inputs: units that each rank has whole. Outputs: the same memory.
class UseStoredUnits final : public UseCutUnits {
 public:
  using UseCutUnits::UseCutUnits;
  std::string_view name() const override { return "use_stored_units"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return {inputs.begin(), inputs.end()};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int output) const override {
    return View{.input = output, .retyped = true, .elided = true};
  }
  void run(const Execution&) const override {}
};

}  // namespace

std::vector<Value> use_cut_units(Builder& builder, std::span<const CutUnit> units,
                                 const CutUnitOptions& options) {
  std::vector<Value> wholes(units.size());
  for (const bool gathers : {true, false}) {
    std::vector<size_t> chosen;
    std::vector<UnitPieces> pieces;
    std::vector<Value> stored;
    for (size_t i = 0; i < units.size(); ++i) {
      if (units[i].pieces.weights.is_cut() != gathers) continue;
      chosen.push_back(i);
      pieces.push_back(units[i].pieces);
      stored.push_back(units[i].stored);
    }
    if (chosen.empty()) continue;
    std::shared_ptr<const Operation> operation;
    if (gathers) {
      operation = std::make_shared<GatherUnits>(builder.program(), std::move(pieces), options);
    } else {
      operation = std::make_shared<UseStoredUnits>(std::move(pieces), options);
    }
    const std::vector<Value> outputs = builder.apply(std::move(operation), stored);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const Value whole = outputs[i];
      wholes[chosen[i]] = whole;
      const std::string& name = units[chosen[i]].name;
      builder.name_as(whole, "whole:" + name);
      if (gathers && !options.gathers_again) builder.keep(whole, Keep::layer);
      builder.sum_in_frame(whole, [&builder, name](const Spec& spec) {
        const Value gradient = zeros(builder, spec);
        builder.name_as(gradient, "frame_gradient:" + name);
        return gradient;
      });
    }
  }
  return wholes;
}

}  // namespace tessera
