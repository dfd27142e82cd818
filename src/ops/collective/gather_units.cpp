#include "ops/collective/gather_units.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/error.h"
#include "device/vendor.h"
#include "ops/collective/flat.h"
#include "ops/collective/flat_steps.h"
#include "ops/collective/version_kernels.h"
#include "ops/collective/wire_pieces.h"
#include "ops/elementwise/elementwise.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// The gather of one unit: from this rank's piece to the whole, in a wire format or as it is. A
/// rounded piece is rounded once, by the rank that has it, and stays so on its way (qwZ of ZeRO++).
class UnitGather {
 public:
  /// `wire` is none if the elements travel as they are.
  UnitGather(const Program& program, FlatPieces pieces, std::optional<Wire> wire)
      : pieces_(std::move(pieces)),
        wire_(wire),
        own_index_(pieces_.piece_index(program.mesh(), program.rank())),
        own_run_(pieces_.run_of(program.mesh(), program.rank())) {
    FlatPieces sent = pieces_;
    if (wire_) {
      for (int64_t& size : sent.sizes) size = wire_bytes(*wire_, size);
      int64_t begin = 0;
      for (const int64_t bytes : sent.sizes) {
        slot_begins_.push_back(begin);
        begin += bytes;
      }
      slot_begins_.push_back(begin);
    }
    steps_ = gather_steps(program, sent);
  }

  const ElementRun& own_run() const { return own_run_; }
  const std::vector<FlatStep>& steps() const { return steps_; }
  std::vector<WireBytes> wire(DType dtype) const {
    return wire_of(steps_, wire_ ? 1 : dtype_size(dtype));
  }
  int64_t workspace_bytes(const Target& target, DType dtype) const {
    return wire_ ? slot_begins_.back() + steps_workspace(steps_, DType::u8, target)
                 : steps_workspace(steps_, dtype, target);
  }

  /// Adds the calls of run() for a whole of this type.
  void list_calls(const CallListing& listing, std::span<CallList* const> groups,
                  DType dtype) const {
    list_steps(listing, steps_, wire_ ? DType::u8 : dtype, groups);
  }

  /// Gathers the pieces. `own` is this rank's: elements, or a message if `is_message`.
  void run(const Execution& execution, std::span<Communicator* const> groups, const Tensor& own,
           bool is_message, const Tensor& whole) const {
    if (!wire_) {
      copy(execution, own, whole.view(own_run_.begin, {own_run_.length}));
      return run_steps(execution, steps_, groups, whole);
    }
    const int64_t bytes = slot_begins_.back();
    const Tensor buffer =
        Tensor::wrap(execution.workspace.data(), {bytes}, DType::u8, whole.accelerator());
    const auto slot = [&](size_t index) {
      return buffer.view(slot_begins_[index], {slot_begins_[index + 1] - slot_begins_[index]});
    };
    if (own_run_.length > 0) {
      if (is_message) {
        copy(execution, own, slot(own_index_));
      } else {
        to_wire(execution, *wire_, own, slot(own_index_));
      }
    }
    Execution within = execution;  // the rest of the workspace is for the calls
    within.workspace = execution.workspace.subspan(static_cast<size_t>(bytes));
    run_steps(within, steps_, groups, buffer);
    int64_t begin = 0;
    for (size_t i = 0; i < pieces_.sizes.size(); ++i) {
      const int64_t length = pieces_.sizes[i];
      if (length > 0) from_wire(execution, *wire_, slot(i), whole.view(begin, {length}));
      begin += length;
    }
  }

 private:
  FlatPieces pieces_;
  std::optional<Wire> wire_;
  size_t own_index_;
  ElementRun own_run_;
  std::vector<FlatStep> steps_;       // of elements, or of the bytes of messages
  std::vector<int64_t> slot_begins_;  // of messages in the workspace, and their end
};

std::optional<Wire> rounding_wire(const Wire& wire, bool may_be_quantised, DType dtype) {
  const Wire of_unit = wire_of_unit(wire, may_be_quantised);
  return is_rounded_by(of_unit, dtype) ? std::optional(of_unit) : std::nullopt;
}

/// The base of the operations that gather units. It keeps one gather for each.
class GatherOfUnits : public Operation {
 public:
  Lane lane() const override { return Lane::reductions; }
  std::vector<std::vector<Axis>> group_axes() const override {
    std::vector<std::vector<Axis>> groups;
    for (const UnitGather& gather : gathers_) {
      std::ranges::copy(groups_of(gather.steps()), std::back_inserter(groups));
    }
    return groups;
  }
  bool takes_wide_gradients() const override { return true; }
  void list_calls(const CallListing& listing) const override {
    std::span<CallList* const> groups = listing.groups;
    for (size_t i = 0; i < gathers_.size(); ++i) {
      const size_t steps = gathers_[i].steps().size();
      gathers_[i].list_calls(listing, groups.first(steps), listing.outputs[i].dtype);
      groups = groups.subspan(steps);
    }
  }

 protected:
  std::vector<UnitGather>& gathers() { return gathers_; }
  const std::vector<UnitGather>& gathers() const { return gathers_; }
  Cost cost_of(std::span<const Spec> inputs, std::span<const Spec> outputs) const {
    Cost cost{.bytes = operand_bytes(inputs, outputs)};
    for (size_t i = 0; i < gathers_.size(); ++i) {
      std::ranges::copy(gathers_[i].wire(outputs[i].dtype), std::back_inserter(cost.wire));
    }
    return cost;
  }
  /// Returns the workspace of the largest gather. `dtypes` are those of the units.
  int64_t workspace_of(const Target& target, std::span<const DType> dtypes) const {
    int64_t bytes = 0;
    for (size_t i = 0; i < gathers_.size(); ++i) {
      bytes = std::max(bytes, gathers_[i].workspace_bytes(target, dtypes[i]));
    }
    return bytes;
  }
  void gather(const Execution& execution, bool messages) const {
    std::span<Communicator* const> groups = execution.groups;
    for (size_t i = 0; i < gathers_.size(); ++i) {
      const size_t steps = gathers_[i].steps().size();
      gathers_[i].run(execution, groups.first(steps), execution.inputs[i],
                      messages && execution.inputs[i].dtype() == DType::u8, execution.outputs[i]);
      groups = groups.subspan(steps);
    }
  }
  /// Returns labels without meaning, `count` of them.
  static std::string names(char letter, size_t count, std::string_view before = "") {
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      text += fmt::format("{}{}{}{}", i == 0 ? "" : ", ", before, letter, i);
    }
    return text;
  }

 private:
  std::vector<UnitGather> gathers_;
};

/// The gather from second copies. Inputs: the copies, their version, and that of the weights.
/// Outputs: the whole weights.
class GatherCopies final : public GatherOfUnits {
 public:
  GatherCopies(const Program& program, std::vector<Spec> wholes, std::span<const FlatPieces> pieces,
               std::span<const Wire> wires, std::string units)
      : wholes_(std::move(wholes)), units_(std::move(units)) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool is_rounded = is_rounded_by(wires[i], wholes_[i].dtype);
      gathers().emplace_back(program, pieces[i],
                             is_rounded ? std::optional(wires[i]) : std::nullopt);
    }
  }
  std::string_view name() const override { return "gather_copies"; }
  std::string labels(std::span<const Spec> inputs) const override {
    return names('c', inputs.size()) + " -> " + names('w', wholes_.size());
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    std::vector<Distribution> result;
    for (const Spec& whole : wholes_) result.push_back(whole.distribution);
    return result;
  }
  std::vector<Spec> infer(std::span<const Spec>) const override { return wholes_; }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return cost_of(inputs, outputs);
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    std::vector<DType> dtypes;
    for (const Spec& whole : wholes_) dtypes.push_back(whole.dtype);
    return workspace_of(target, dtypes);
  }
  void run(const Execution& execution) const override {
    if (execution.stream == nullptr) require_version(execution);
    gather(execution, /*messages=*/true);
    if (execution.stream != nullptr) spoil_stale(execution);
  }

 private:
  /// Throws Error if the copies are not of the version that the weights have.
  void require_version(const Execution& execution) const {
    const int32_t copied = execution.inputs[wholes_.size()].data<int32_t>()[0];
    const int32_t expected = execution.inputs[wholes_.size() + 1].data<int32_t>()[0];
    if (copied == expected) return;
    throw Error(
        "the second copy of the weights of {} is of version {}, but the weights are of version {}: "
        "a gather in the forward pass did not write it; this is a fault of the program",
        units_, copied, expected);
  }

  /// Fills the weights with NaN in that case. The host does not know a device's versions while it
  /// gives work. The norm of the gradients becomes NaN, so nothing is updated, and
  /// TrainingStep::find_non_finite() names the unit.
  void spoil_stale(const Execution& execution) const {
    const auto* const copied = execution.inputs[wholes_.size()].pointer<int32_t>();
    const auto* const expected = execution.inputs[wholes_.size() + 1].pointer<int32_t>();
    const auto spoil = [&](auto* weights, int64_t count) {
      for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        spoil_stale_device<Vendor>(copied, expected, weights, count, *execution.stream);
      });
    };
    for (const Tensor& whole : execution.outputs) {
      if (whole.elements() == 0) continue;
      if (whole.dtype() == DType::f32) {
        spoil(whole.pointer<float>(), whole.elements());
      } else {
        spoil(whole.pointer<BFloat16>(), whole.elements());
      }
    }
  }

  std::vector<Spec> wholes_;
  std::string units_;
};

class GatherUnits final : public GatherOfUnits {
 public:
  GatherUnits(const Program& program, std::vector<UnitPieces> units, std::span<const DType> dtypes,
              const std::vector<bool>& may_be_quantised, const CutUnitOptions& options,
              bool has_copies)
      : units_(std::move(units)),
        may_be_quantised_(may_be_quantised),
        options_(options),
        has_copies_(has_copies) {
    for (size_t i = 0; i < units_.size(); ++i) {
      gathers().emplace_back(program, units_[i].weights,
                             rounding_wire(options_.weights_wire, may_be_quantised_[i], dtypes[i]));
      copy_runs_.push_back(has_copies_ ? units_[i].secondary->run_of(program.mesh(), program.rank())
                                       : ElementRun{});
    }
  }

  std::string_view name() const override { return "gather_units"; }
  std::string labels(std::span<const Spec>) const override {
    std::string before = names('p', units_.size(), "~");
    if (has_copies_) before += ", v";
    std::string after = names('w', units_.size());
    if (has_copies_) after += ", += ?" + names('c', units_.size(), "") + ", += ?n";
    return before + " -> " + after;
  }
  std::vector<int> updated_inputs() const override {
    std::vector<int> updated;
    if (!has_copies_) return updated;
    const int first = static_cast<int>(units_.size()) + 1;
    for (int i = 0; i <= static_cast<int>(units_.size()); ++i) updated.push_back(first + i);
    return updated;
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand> inputs) const override {
    std::vector<Distribution> wholes;
    for (size_t i = 0; i < units_.size(); ++i) {
      Distribution whole = inputs[i].spec.distribution;
      const TypeOnAxis type = units_[i].weights.type();
      for (const Axis axis : units_[i].weights.axes) {
        TESSERA_EXPECT(*this, whole.on(axis) == type, "'{}' is {}; expected {}", inputs[i].name,
                       whole.on(axis).text(), type.text());
        whole = whole.with(axis, invariant());
      }
      wholes.push_back(whole);
    }
    return wholes;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    std::vector<Spec> wholes;
    for (size_t i = 0; i < units_.size(); ++i) {
      const ElementRun& own = gathers()[i].own_run();
      TESSERA_EXPECT(*this, inputs[i].shape == Shape{own.length}, "{}; expected {} elements",
                     inputs[i].shape.text(), own.length);
      wholes.push_back({{units_[i].weights.elements()}, inputs[i].dtype, {}});
    }
    return wholes;
  }
  bool cheap_to_repeat() const override { return options_.gathers_again; }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return cost_of(inputs.first(units_.size()), outputs);
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    std::vector<DType> dtypes;
    for (size_t i = 0; i < units_.size(); ++i) dtypes.push_back(inputs[i].dtype);
    return workspace_of(target, dtypes);
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    for (size_t i = 0; i < units_.size(); ++i) {
      if (!output_gradients[i]) continue;
      reduce_gradient(builder, output_gradients[i], self.inputs[i], units_[i].gradients,
                      wire_of_unit(options_.gradients_wire, may_be_quantised_[i]),
                      options_.error_feedback);
    }
    // Nothing is left to be added into the main gradients of the inputs.
    return std::vector<Value>(self.inputs.size());
  }

  std::vector<Value> recompute(Builder& builder, const Node& self, std::span<const Value> inputs,
                               std::span<const Value> kept) const override {
    std::vector<Value> outputs = has_copies_ ? gather_copies(builder, self, inputs)
                                             : Operation::recompute(builder, self, inputs, kept);
    for (size_t i = 0; i < outputs.size(); ++i) {
      builder.name_as(outputs[i], builder.program().info(self.outputs[i]).name + "/again");
    }
    return outputs;
  }

  void run(const Execution& execution) const override {
    gather(execution, /*messages=*/false);
    if (has_copies_) write_copies(execution);
  }

 private:
  /// Appends the gather of the backward pass from second copies.
  std::vector<Value> gather_copies(Builder& builder, const Node& self,
                                   std::span<const Value> inputs) const {
    std::vector<Spec> wholes;
    std::vector<FlatPieces> pieces;
    std::vector<Wire> wires;
    std::string names;
    for (size_t i = 0; i < units_.size(); ++i) {
      wholes.push_back(builder.spec(self.outputs[i]));
      pieces.push_back(*units_[i].secondary);
      wires.push_back(wire_of_unit(options_.secondary_wire, may_be_quantised_[i]));
      names += (i == 0 ? "" : ", ") + builder.program().info(self.inputs[i]).name;
    }
    const auto copies = inputs.subspan(units_.size() + 1);  // and their version
    std::vector<Value> operands(copies.begin(), copies.end());
    operands.push_back(inputs[units_.size()]);
    return builder.apply(std::make_shared<GatherCopies>(builder.program(), std::move(wholes),
                                                        pieces, wires, std::move(names)),
                         std::move(operands));
  }

  void write_copies(const Execution& execution) const {
    const size_t first = units_.size() + 1;
    for (size_t i = 0; i < units_.size(); ++i) {
      const Tensor& whole = execution.outputs[i];
      const Tensor own = whole.view(copy_runs_[i].begin, {copy_runs_[i].length});
      const auto wire = rounding_wire(options_.secondary_wire, may_be_quantised_[i], whole.dtype());
      if (own.elements() == 0) continue;
      if (wire) {
        to_wire(execution, *wire, own, execution.inputs[first + i]);
      } else {
        copy(execution, own, execution.inputs[first + i]);
      }
    }
    copy(execution, execution.inputs[units_.size()], execution.inputs[first + units_.size()]);
  }

  std::vector<UnitPieces> units_;
  std::vector<bool> may_be_quantised_;
  CutUnitOptions options_;
  bool has_copies_;
  std::vector<ElementRun> copy_runs_;  // by unit: this rank's run of the second copy
};

}  // namespace

std::shared_ptr<const Operation> make_gather_units(const Program& program,
                                                   std::vector<UnitPieces> units,
                                                   std::span<const DType> dtypes,
                                                   const std::vector<bool>& may_be_quantised,
                                                   const CutUnitOptions& options, bool has_copies) {
  return std::make_shared<GatherUnits>(program, std::move(units), dtypes, may_be_quantised, options,
                                       has_copies);
}

Spec copy_spec(const Program& program, const FlatPieces& pieces, const Spec& whole,
               const Wire& wire) {
  FlatPieces stored = pieces;
  const bool is_rounded = is_rounded_by(wire, whole.dtype);
  if (is_rounded) {
    for (int64_t& size : stored.sizes) size = wire_bytes(wire, size);
  }
  return {{stored.run_of(program.mesh(), program.rank()).length},
          is_rounded ? DType::u8 : whole.dtype,
          stored.distribution(whole.distribution)};
}

void reduce_gradient(Builder& builder, Value frame, Value stored, const FlatPieces& pieces,
                     const Wire& wire, double error_feedback) {
  const Mesh& mesh = builder.program().mesh();
  std::vector<Axis> axes;  // innermost first, as Mesh lists them
  for (const Axis axis : mesh.axes_of(builder.spec(frame).distribution.view())) {
    if (std::ranges::find(pieces.axes, axis) != pieces.axes.end()) axes.push_back(axis);
  }
  std::optional<SumFeedback> feedback;
  if (error_feedback > 0 && wire.is_quantised() && is_rounded_by(wire, builder.spec(frame).dtype)) {
    feedback = {.error = builder.state(
                    fmt::format("{}{}", kErrorPrefix, builder.program().info(stored).name),
                    builder.spec(frame)),
                .beta = error_feedback};
  }
  const Value piece = take_piece_of_sum(builder, frame, pieces, /*held=*/0, axes, wire, feedback);
  const Spec spec = builder.spec(piece);
  accumulate(builder, builder.declare_main_gradient(stored, spec.shape, spec.distribution), piece);
}

}  // namespace tessera
