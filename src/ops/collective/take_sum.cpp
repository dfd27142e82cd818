#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/wire_bytes.h"
#include "ops/collective/convert.h"
#include "ops/collective/move.h"
#include "ops/collective/narrow.h"
#include "ops/labels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Returns the slices of a value over the ranks of a level: nearly equal, in the order of the
/// ranks.
PieceLayout slices_of(int64_t elements, int ranks) {
  std::vector<std::vector<ElementRun>> runs;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t begin = slice_begin(elements, ranks, rank);
    const int64_t length = slice_begin(elements, ranks, rank + 1) - begin;
    runs.push_back(length == 0 ? std::vector<ElementRun>{}
                               : std::vector<ElementRun>{{begin, length}});
  }
  return {1, elements, 1, std::move(runs)};
}

/// The ranks that sum together in one level of a sum, and their slices of what they sum.
struct SumLevel {
  std::vector<Axis> axes;
  PieceLayout slices;
  int position = 0;  ///< that of this rank

  int64_t own_elements() const { return slices.elements(position); }
};

/// Returns the levels over these axes, innermost first. Each sums the slice that the one before
/// leaves to this rank.
std::vector<SumLevel> levels_of(const Program& program, int64_t elements,
                                std::span<const std::vector<Axis>> axes) {
  std::vector<SumLevel> levels;
  for (const std::vector<Axis>& level_axes : axes) {
    const std::vector<int> group = program.mesh().group(program.rank(), level_axes);
    const auto position = std::ranges::find(group, program.rank()) - group.begin();
    levels.push_back({level_axes, slices_of(elements, static_cast<int>(group.size())),
                      static_cast<int>(position)});
    elements = levels.back().own_elements();
  }
  return levels;
}

/// Updated input: this rank's addend, which becomes the sum. The view of it that follows has the
/// type of the sum.
class TakeSum final : public MoveOperation {
 public:
  /// `levels` are the ranks of the move, innermost level first.
  TakeSum(Move move, std::vector<SumLevel> levels, WireFormat wire)
      : MoveOperation(std::move(move)), levels_(std::move(levels)), wire_(wire) {}
  std::string_view name() const override { return "take_sum"; }
  Lane lane() const override { return Lane::network; }
  std::vector<std::vector<Axis>> meets() const override {
    std::vector<std::vector<Axis>> result;
    for (const SumLevel& level : levels_) result.push_back(level.axes);
    return result;
  }

  std::string labels(std::span<const Spec> inputs) const override {
    return fmt::format("-> += ?{}", element_labels(inputs[0].shape.rank()));
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    return std::vector<Distribution>{};
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    MoveOperation::infer(inputs);
    return {};
  }
  std::vector<Value> gradient(Builder&, const Node&, std::span<const Value>) const override {
    return {Value{}};
  }
  std::vector<int> updated_inputs() const override { return {0}; }

  /// Returns the cost. A level sends parts of the slice that the levels within it leave to a rank.
  /// The bytes are those of slices of equal size.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    Cost cost{.bytes = operand_bytes(inputs, outputs, updated_inputs())};
    const int64_t size = dtype_size(wire_dtype(inputs[0].dtype));
    double elements = static_cast<double>(move().whole.elements());
    for (const SumLevel& level : levels_) {
      const int ranks = level.slices.ranks();
      const double sent = 2 * elements * (ranks - 1) / ranks;
      cost.wire.push_back({level.axes, sent * static_cast<double>(size)});
      elements /= ranks;
    }
    return cost;
  }

  void run(const Execution& execution) const override {
    const Tensor& value = execution.inputs[0];
    const bool narrow = narrows(value.dtype());
    const Tensor addend =
        narrow ? narrow_in_place(value, execution.stream) : value.reshape({value.elements()});
    sum(execution, addend, 0);
    if (narrow) widen_in_place(value, execution.stream);
  }

 protected:
  int64_t staged_bytes(DType dtype) const override {
    int64_t bytes = 0;
    for (const SumLevel& level : levels_) {
      const bool last = &level == &levels_.back();
      bytes =
          std::max(bytes, last ? all_reduce_workspace(level.slices.elements(), wire_dtype(dtype),
                                                      level.slices.ranks())
                               : std::max(reduce_scatter_workspace(level.slices, wire_dtype(dtype)),
                                          all_gather_workspace(level.slices, wire_dtype(dtype))));
    }
    return bytes;
  }

 private:
  DType wire_dtype(DType dtype) const { return narrows(dtype) ? DType::bf16 : dtype; }
  bool narrows(DType dtype) const { return wire_ == WireFormat::bf16 && dtype == DType::f32; }

  /// Sums a value over the ranks of a level, and within its slices over the levels around it.
  void sum(const Execution& execution, const Tensor& value, size_t level) const {
    Communicator& group = *execution.groups[level];
    if (level + 1 == levels_.size()) {
      return group.all_reduce(execution.name, value, value, Reduction::sum, execution.call());
    }
    const auto& [axes, slices, position] = levels_[level];
    const Tensor own = value.view(slices.begin(position), {slices.elements(position)});
    group.reduce_scatter(execution.name, slices, value, own, execution.call());
    if (own.elements() > 0) sum(execution, own, level + 1);
    group.all_gather(execution.name, slices, own, value, execution.call());
  }

  std::vector<SumLevel> levels_;
  WireFormat wire_;
};

/// Returns the sum over these axes: level by level if `by_level`, or else in one step.
Value taken_sum(Builder& builder, Value value, std::span<const Axis> axes, bool by_level,
                WireFormat wire) {
  if (axes.empty()) return value;
  std::vector<Conversion> conversions;
  for (const Axis axis : axes) conversions.push_back({axis, Placement::partial, invariant()});
  const ValueInfo& info = builder.program().info(value);
  const Mesh& mesh = builder.program().mesh();
  converted(mesh, {info.name, info.spec, info.differentiable}, conversions);  // checks the types
  Move move = plan_move(builder.program(), value, conversions);
  if (move.ranks > 1) {
    const std::vector<std::vector<Axis>> in_one_step{move.axes};
    std::vector<SumLevel> levels = levels_of(builder.program(), move.whole.elements(),
                                             by_level ? mesh.by_level(move.axes) : in_one_step);
    builder.apply(std::make_shared<TakeSum>(std::move(move), std::move(levels), wire), {value});
  }
  const Value taken = builder.apply_single(make_retype(std::move(conversions)), {value});
  builder.replace(value, taken);
  return taken;
}

}  // namespace

Value take_sum(Builder& builder, Value value, std::span<const Axis> axes) {
  return taken_sum(builder, value, axes, /*by_level=*/false, WireFormat::fp32);
}

Value take_sum_by_level(Builder& builder, Value value, std::span<const Axis> axes,
                        WireFormat wire) {
  return taken_sum(builder, value, axes, /*by_level=*/true, wire);
}

}  // namespace tessera
