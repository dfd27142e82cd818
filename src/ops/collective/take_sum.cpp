#include <optional>
#include <utility>

#include <fmt/format.h>

#include "comm/wire_bytes.h"
#include "ops/collective/convert.h"
#include "ops/collective/move.h"
#include "ops/collective/narrow.h"
#include "ops/labels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// The slices of a value over the ranks of a level: nearly equal, in the order of the ranks.
PieceLayout slices(int64_t elements, int ranks) {
  std::vector<std::vector<ElementRun>> runs;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t begin = slice_begin(elements, ranks, rank);
    const int64_t length = slice_begin(elements, ranks, rank + 1) - begin;
    runs.push_back(length == 0 ? std::vector<ElementRun>{}
                               : std::vector<ElementRun>{{begin, length}});
  }
  return {1, elements, 1, std::move(runs)};
}

/// The ranks of the mesh that a rank meets in one level of a sum.
struct SumLevel {
  std::vector<Axis> axes;
  int ranks = 1;
};

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

  /// What a level sends depends on the slice that the levels within it leave to a rank. The bytes
  /// are those of slices of equal size.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    Cost cost{.bytes = operand_bytes(inputs, outputs, updated_inputs())};
    const int64_t size = dtype_size(narrows(inputs[0].dtype) ? DType::bf16 : inputs[0].dtype);
    double elements = static_cast<double>(move().whole.elements());
    for (const SumLevel& level : levels_) {
      const double sent = 2 * elements * (level.ranks - 1) / level.ranks;
      cost.wire.push_back({level.axes, sent * static_cast<double>(size)});
      elements /= level.ranks;
    }
    return cost;
  }

  void run(const Execution& execution) const override {
    const Tensor& value = execution.inputs[0];
    const bool narrow = narrows(value.dtype());
    const Tensor addend = narrow ? narrow_in_place(value) : value.reshape({value.elements()});
    sum(execution, addend, execution.groups);
    if (narrow) widen_in_place(value);
  }

 private:
  bool narrows(DType dtype) const { return wire_ == WireFormat::bf16 && dtype == DType::f32; }

  /// Sums over the first of the groups, and over the others within its slices.
  static void sum(const Execution& execution, const Tensor& value,
                  std::span<Communicator* const> groups) {
    Communicator& group = *groups.front();
    if (groups.size() == 1) return group.all_reduce(execution.name, value, value);
    const PieceLayout layout = slices(value.elements(), group.size());
    const int64_t begin = slice_begin(value.elements(), group.size(), group.position());
    const Tensor own = value.slice(begin, begin + layout.elements(group.position()));
    group.reduce_scatter(execution.name, layout, value, own);
    if (own.elements() > 0) sum(execution, own, groups.subspan(1));
    group.all_gather(execution.name, layout, own, value);
  }

  std::vector<SumLevel> levels_;
  WireFormat wire_;
};

/// `by_level` has the axes of more than one rank.
Value taken_sum(Builder& builder, Value value, std::span<const Axis> axes, bool by_level,
                WireFormat wire) {
  if (axes.empty()) return value;
  std::vector<Conversion> conversions;
  for (const Axis axis : axes) conversions.push_back({axis, Placement::partial, invariant()});
  const ValueInfo& info = builder.program().info(value);
  const Mesh& mesh = builder.program().mesh();
  converted(mesh, {info.name, info.spec, info.differentiable}, conversions);  // refuses other types
  Move move = plan_move(builder.program(), value, conversions);
  if (move.ranks > 1) {
    std::vector<SumLevel> levels;
    const std::vector<std::vector<Axis>> in_one_step{move.axes};
    for (const std::vector<Axis>& level : by_level ? mesh.by_level(move.axes) : in_one_step) {
      levels.push_back({level});
      for (const Axis axis : level) levels.back().ranks *= mesh.size(axis);
    }
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
