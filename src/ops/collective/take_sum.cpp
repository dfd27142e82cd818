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

// A sum over all ranks at once is one all-reduce. A sum by level is nested, innermost level first:
// a reduce-scatter leaves each rank a slice, the slice is summed over the next outer level in the
// same way, and an all-gather joins the slices again. The outermost level is one all-reduce.

/// Returns nearly equal slices of a value, in the order of the ranks. A slice may be empty.
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

/// One level of a sum: the ranks that sum together, and their slices of the elements.
struct SumLevel {
  std::vector<Axis> axes;
  PieceLayout slices;
  int position = 0;  ///< the position of this rank
};

/// Returns the levels over `axes`, which are listed by level, innermost first. Each level sums the
/// slice that the level before leaves this rank.
std::vector<SumLevel> levels_of(const Program& program, int64_t elements,
                                std::span<const std::vector<Axis>> axes) {
  std::vector<SumLevel> levels;
  for (const std::vector<Axis>& level_axes : axes) {
    const std::vector<int> group = program.mesh().group(program.rank(), level_axes);
    const auto position = std::ranges::find(group, program.rank()) - group.begin();
    levels.push_back({level_axes, slices_of(elements, static_cast<int>(group.size())),
                      static_cast<int>(position)});
    elements = levels.back().slices.elements(static_cast<int>(position));
  }
  return levels;
}

/// Updated input: this rank's addend, which becomes the sum. A retyping node after this one gives
/// the memory the type of the sum.
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

  /// Returns the cost if all slices of a level are equally large. A level sends parts of the slice
  /// that the levels within it leave a rank.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    Cost cost{.bytes = operand_bytes(inputs, outputs, updated_inputs())};
    const int64_t size = dtype_size(wire_dtype(wire_, inputs[0].dtype));
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
    const bool narrow = wire_dtype(wire_, value.dtype()) != value.dtype();
    const Tensor addend =
        narrow ? narrow_in_place(value, execution.stream) : value.reshape({value.elements()});
    sum(execution, addend, 0);
    if (narrow) widen_in_place(value, execution.stream);
  }

 protected:
  int64_t staged_bytes(DType dtype) const override {
    int64_t bytes = 0;
    for (const SumLevel& level : levels_) {
      const bool outermost = &level == &levels_.back();
      bytes = std::max(
          bytes, outermost
                     ? all_reduce_workspace(level.slices.elements(), wire_dtype(wire_, dtype),
                                            level.slices.ranks())
                     : std::max(reduce_scatter_workspace(level.slices, wire_dtype(wire_, dtype)),
                                all_gather_workspace(level.slices, wire_dtype(wire_, dtype))));
    }
    return bytes;
  }

 private:
  /// Sums a value over the ranks of a level and of all levels outside it. The ranks that would sum
  /// an empty slice over the outer levels all skip that together.
  void sum(const Execution& execution, const Tensor& value, size_t level) const {
    Communicator& group = *execution.groups[level];
    if (level + 1 == levels_.size()) {
      return group.all_reduce(execution.name, value, value, Reduction::sum, execution.call());
    }
    const auto& [axes, slices, position] = levels_[level];
    const Tensor slice = value.view(slices.begin(position), {slices.elements(position)});
    group.reduce_scatter(execution.name, slices, value, slice, execution.call());
    if (slice.elements() > 0) sum(execution, slice, level + 1);
    group.all_gather(execution.name, slices, slice, value, execution.call());
  }

  std::vector<SumLevel> levels_;
  WireFormat wire_;
};

/// Returns the sum over these axes: level by level if `by_level`, otherwise in one step.
Value sum_over(Builder& builder, Value value, std::span<const Axis> axes, bool by_level,
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
  const Value sum = builder.apply_single(make_retype(std::move(conversions)), {value});
  builder.replace(value, sum);
  return sum;
}

}  // namespace

Value take_sum(Builder& builder, Value value, std::span<const Axis> axes) {
  return sum_over(builder, value, axes, /*by_level=*/false, WireFormat::fp32);
}

Value take_sum_by_level(Builder& builder, Value value, std::span<const Axis> axes,
                        WireFormat wire) {
  return sum_over(builder, value, axes, /*by_level=*/true, wire);
}

}  // namespace tessera
