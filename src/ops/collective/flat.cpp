#include "ops/collective/flat.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ops/collective/convert.h"
#include "ops/collective/flat_steps.h"
#include "ops/collective/move.h"
#include "ops/collective/wire_pieces.h"
#include "ops/collective/wire_steps.h"
#include "ops/labels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// The base of the operations that run steps in the memory of one input, which they change. They
/// have no gradient.
class FlatOperation : public Operation {
 public:
  explicit FlatOperation(std::vector<FlatStep> steps) : steps_(std::move(steps)) {}
  Lane lane() const override { return Lane::reductions; }
  std::vector<std::vector<Axis>> group_axes() const override { return groups_of(steps_); }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    return std::vector<Distribution>{};
  }
  std::vector<Spec> infer(std::span<const Spec>) const override { return {}; }

 protected:
  const std::vector<FlatStep>& steps() const { return steps_; }

 private:
  std::vector<FlatStep> steps_;
};

/// The base of the sums. Updated input: this rank's addend, in whose memory the sum is taken, or
/// this rank's piece of it. A node after this one gives the memory the type of the result.
class TakeSum : public FlatOperation {
 public:
  TakeSum(std::string_view name, std::vector<FlatStep> steps)
      : FlatOperation(std::move(steps)), name_(name) {}
  std::string_view name() const override { return name_; }
  std::string labels(std::span<const Spec> inputs) const override {
    return "-> += ?" + element_labels(inputs[0].shape.rank());
  }
  std::vector<int> updated_inputs() const override { return {0}; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const int64_t elements = steps().front().whole.length;
    TESSERA_EXPECT(*this, inputs.size() == 1 && inputs[0].shape.elements() == elements,
                   "{}; expected {} elements", inputs[0].shape.text(), elements);
    return {};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return {.bytes = operand_bytes(inputs, outputs, updated_inputs()),
            .wire = wire_of(steps(), dtype_size(inputs[0].dtype))};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    return steps_workspace(steps(), inputs[0].dtype, target);
  }
  void run(const Execution& execution) const override {
    const Tensor& value = execution.inputs[0];
    run_steps(execution, steps(), execution.groups, value.reshape({value.elements()}));
  }
  void list_calls(const CallListing& listing) const override {
    list_steps(listing, steps(), listing.inputs[0].dtype, listing.groups);
  }

 private:
  std::string_view name_;
};

/// The sum whose addends are rounded to travel. With feedback, a second updated input: the errors.
class TakeRoundedSum final : public TakeSum {
 public:
  TakeRoundedSum(std::string_view name, WireSum sum, std::optional<double> beta)
      : TakeSum(name, sum.steps()), sum_(std::move(sum)), beta_(beta) {}
  std::string labels(std::span<const Spec> inputs) const override {
    return TakeSum::labels(inputs) + (beta_ ? ", += ?e" : "");
  }
  std::vector<int> updated_inputs() const override {
    return beta_ ? std::vector{0, 1} : std::vector{0};
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, !beta_ || is_like(inputs[0], inputs[1]), "errors {} of addends {}",
                   text_of(inputs[1]), text_of(inputs[0]));
    return TakeSum::infer(inputs.first(1));
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return {.bytes = operand_bytes(inputs, outputs, updated_inputs()), .wire = sum_.wire()};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    return sum_.workspace_bytes(target);
  }
  void run(const Execution& execution) const override {
    const Tensor& value = execution.inputs[0];
    std::optional<ErrorFeedback> feedback;
    if (beta_) feedback = {.error = execution.inputs[1], .beta = *beta_};
    sum_.run(execution, execution.groups, value.reshape({value.elements()}), feedback);
  }
  void list_calls(const CallListing& listing) const override { sum_.list_calls(listing); }

 private:
  WireSum sum_;
  std::optional<double> beta_;
};

/// Inputs: this rank's piece of flat memory, and the memory, which is updated. The piece is a view
/// of the memory, through which run() reads it.
class GatherPieces final : public FlatOperation {
 public:
  using FlatOperation::FlatOperation;
  std::string_view name() const override { return "gather_pieces"; }
  std::string labels(std::span<const Spec>) const override { return "p! -> += ?f"; }
  std::vector<int> updated_inputs() const override { return {1}; }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    return {.bytes = static_cast<double>(inputs[0].bytes() + inputs[1].bytes()),
            .wire = wire_of(steps(), dtype_size(inputs[0].dtype))};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    return steps_workspace(steps(), inputs[0].dtype, target);
  }
  void run(const Execution& execution) const override {
    run_steps(execution, steps(), execution.groups, execution.inputs[1]);
  }
  void list_calls(const CallListing& listing) const override {
    list_steps(listing, steps(), listing.inputs[1].dtype, listing.groups);
  }
};

/// Input: flat memory. Output: this rank's piece, as a view of this distribution.
class FlatPiece final : public Operation {
 public:
  FlatPiece(Distribution distribution, const ElementRun& run, DType dtype)
      : distribution_(std::move(distribution)),
        elements_(run.length),
        byte_offset_(run.begin * dtype_size(dtype)) {}
  std::string_view name() const override { return "flat_piece"; }
  std::string labels(std::span<const Spec>) const override { return "~f! -> piece"; }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    return std::vector{distribution_};
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return {{{elements_}, inputs[0].dtype, {}}};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int) const override { return View{0, byte_offset_}; }
  void run(const Execution&) const override {}

 private:
  Distribution distribution_;
  int64_t elements_;
  int64_t byte_offset_;
};

/// Appends the sum of a value over these levels, of which each rank gets its piece.
void append_sum(Builder& builder, std::string_view name, Value value, const FlatPieces& pieces,
                std::span<const std::vector<Axis>> levels, const Wire& wire,
                const std::optional<SumFeedback>& feedback = {}) {
  const Program& program = builder.program();
  const Spec& spec = builder.spec(value);
  if (!is_rounded_by(wire, spec.dtype)) {
    builder.apply(
        std::make_shared<TakeSum>(name, sum_steps(program, pieces, levels, spec.distribution)),
        {value});
    return;
  }
  WireSum sum(
      sum_steps(program, pieces, levels, spec.distribution, /*all_reduces=*/false, kSliceElements),
      wire, /*sends_on=*/pieces.sizes.size() == 1);
  std::vector<Value> inputs{value};
  if (feedback) inputs.push_back(feedback->error);
  builder.apply(std::make_shared<TakeRoundedSum>(
                    name, std::move(sum), feedback ? std::optional(feedback->beta) : std::nullopt),
                std::move(inputs));
}

/// Returns the axes of a sum level by level, or all in one level; those of one rank are left out.
std::vector<std::vector<Axis>> levels_of(const Mesh& mesh, std::span<const Axis> axes,
                                         bool by_level) {
  std::vector<std::vector<Axis>> levels = mesh.axes_by_level(axes);
  if (by_level || levels.empty()) return levels;
  std::vector<std::vector<Axis>> one(1);
  for (const std::vector<Axis>& level : levels) {
    one[0].insert(one[0].end(), level.begin(), level.end());
  }
  return one;
}

/// Returns the sum over these axes: level by level if `by_level`, otherwise in one step.
Value sum_over(Builder& builder, Value value, std::span<const Axis> axes, bool by_level,
               const Wire& wire) {
  if (axes.empty()) return value;
  std::vector<Conversion> conversions;
  for (const Axis axis : axes) conversions.push_back({axis, Placement::partial, invariant()});
  const ValueInfo& info = builder.program().info(value);
  const Mesh& mesh = builder.program().mesh();
  converted(mesh, {info.name, info.spec, info.differentiable}, conversions);  // checks the types
  const std::vector<Axis> summed =
      plan_move(builder.program(), value, conversions, Lane::reductions).axes;
  if (!summed.empty()) {
    const FlatPieces whole{.axes = {}, .sizes = {info.spec.shape.elements()}};
    append_sum(builder, "take_sum", value, whole, levels_of(mesh, summed, by_level), wire);
  }
  const Value sum = builder.apply_single(make_retype(std::move(conversions)), {value});
  builder.replace(value, sum);
  return sum;
}

/// Returns the distribution of this rank's piece of a value. Throws DistributionError unless the
/// value has the placement `from` on the axes of the pieces after the first `held`, on which it is
/// cut already, and is partial on the other axes in `summed`.
Distribution piece_distribution(const Program& program, Value whole, const FlatPieces& pieces,
                                size_t held, Placement from, std::span<const Axis> summed) {
  const Mesh& mesh = program.mesh();
  const ValueInfo& info = program.info(whole);
  Distribution distribution = info.spec.distribution;
  std::vector<Conversion> conversions;
  for (const Axis axis : std::span(pieces.axes).subspan(held)) {
    conversions.push_back({axis, from, pieces.type()});
  }
  for (const Axis axis : summed) {
    if (std::ranges::find(pieces.axes, axis) != pieces.axes.end()) continue;
    conversions.push_back({axis, Placement::partial, invariant()});
    distribution = distribution.with(axis, invariant());
  }
  converted(mesh, {info.name, info.spec, info.differentiable}, conversions);  // checks the types
  const TypeOnAxis before = pieces.outer(mesh, held).type();
  for (const Axis axis : std::span(pieces.axes).first(held)) {
    TESSERA_CHECK(distribution.on(axis) == before, "'{}' is {} on {}; expected {}", info.name,
                  distribution.on(axis).text(), mesh.name(axis), before.text());
  }
  return pieces.distribution(std::move(distribution));
}

Value flat_piece(Builder& builder, Value whole, Distribution distribution,
                 const FlatPieces& pieces) {
  const Program& program = builder.program();
  const Spec& spec = builder.spec(whole);
  TESSERA_CHECK(spec.shape == Shape{pieces.elements()}, "pieces of {} elements of '{}' {}",
                pieces.elements(), program.info(whole).name, spec.shape.text());
  const ElementRun run = pieces.run_of(program.mesh(), program.rank());
  return builder.apply_single(std::make_shared<FlatPiece>(std::move(distribution), run, spec.dtype),
                              {whole});
}

}  // namespace

Value take_sum(Builder& builder, Value value, std::span<const Axis> axes) {
  return sum_over(builder, value, axes, /*by_level=*/false, {});
}

Value take_sum_by_level(Builder& builder, Value value, std::span<const Axis> axes,
                        const Wire& wire) {
  return sum_over(builder, value, axes, wire.by_level, wire);
}

Value take_piece_of_sum(Builder& builder, Value value, const FlatPieces& pieces, size_t held,
                        std::span<const Axis> axes, const Wire& wire,
                        const std::optional<SumFeedback>& feedback) {
  const Program& program = builder.program();
  const Mesh& mesh = program.mesh();
  Distribution distribution =
      piece_distribution(program, value, pieces, held, Placement::partial, axes);
  const FlatPieces within = pieces.within(mesh, program.rank(), held);
  const std::vector<std::vector<Axis>> levels = levels_of(mesh, axes, wire.by_level);
  if (!levels.empty()) {
    append_sum(builder, "take_piece_of_sum", value, within, levels, wire, feedback);
  }
  const Value piece = flat_piece(builder, value, std::move(distribution), within);
  builder.replace(value, piece);
  return piece;
}

Value own_flat_piece(Builder& builder, Value whole, const FlatPieces& pieces, size_t held) {
  const Program& program = builder.program();
  return flat_piece(builder, whole,
                    piece_distribution(program, whole, pieces, held, Placement::invariant, {}),
                    pieces.within(program.mesh(), program.rank(), held));
}

void gather_pieces(Builder& builder, Value piece, Value whole, const FlatPieces& pieces,
                   size_t held) {
  const Program& program = builder.program();
  const Mesh& mesh = program.mesh();
  const Distribution distribution = pieces.distribution(builder.spec(whole).distribution);
  if (builder.spec(piece).distribution != distribution ||
      program.base(piece) != program.base(whole)) {
    throw DistributionError(
        fmt::format("gather_pieces: '{}' is {}; expected a piece of '{}', which is {}",
                    program.info(piece).name, builder.spec(piece).distribution.text(mesh),
                    program.info(whole).name, distribution.text(mesh)));
  }
  std::vector<FlatStep> steps = gather_steps(program, pieces.within(mesh, program.rank(), held));
  if (steps.empty()) return;
  builder.apply(std::make_shared<GatherPieces>(std::move(steps)), {piece, whole});
}

}  // namespace tessera
