#include "ops/collective/flat.h"

#include <algorithm>
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
//
// Flat memory is split level by level. The innermost level (the ranks of a node) makes the
// outermost split: its ranks divide the memory first, and the ranks of the next level divide each
// of these parts. A sum takes the levels in this order, with one reduce-scatter each, which leaves
// a rank a smaller run of memory to sum (SumRuns). Ranks that keep the same piece sum a slice of
// it each, and join the slices by an all-gather. A gather takes the levels in the opposite order.

/// One level of a sum or of a gather, as seen by one rank: the ranks of its group, the run of the
/// flat memory that they divide, and their pieces of this run.
struct FlatLevel {
  std::vector<Axis> axes;  // on which the coordinates of the group's ranks differ
  ElementRun whole;
  PieceLayout pieces;  // the pieces of the run, by position in the group
  int position = 0;    // the position of this rank in the group

  Tensor whole_of(const Tensor& memory) const { return memory.view(whole.begin, {whole.length}); }
  Tensor piece_of(const Tensor& memory) const {
    return memory.view(whole.begin + pieces.piece_begin(position), {pieces.elements(position)});
  }
};

/// Returns the level over these axes, whose ranks divide the run `whole`. A rank of the group gets
/// the part of run_of(rank, its position in the group) that is within `whole`.
template <typename RunOf>
FlatLevel level_of(const Program& program, std::vector<Axis> axes, const ElementRun& whole,
                   RunOf&& run_of) {
  const std::vector<int> group = program.mesh().group(program.rank(), axes);
  std::vector<std::vector<ElementRun>> runs;
  for (const int rank : group) {
    const ElementRun run = intersection(run_of(rank, static_cast<int>(runs.size())), whole);
    runs.emplace_back();
    if (run.length > 0) runs.back().push_back({run.begin - whole.begin, run.length});
  }
  const auto position = std::ranges::find(group, program.rank()) - group.begin();
  return {std::move(axes), whole, PieceLayout(1, whole.length, 1, std::move(runs)),
          static_cast<int>(position)};
}

/// The runs of flat memory that ranks sum, level by level. It keeps references to its arguments.
class SumRuns {
 public:
  /// `levels` are Mesh::axes_by_level() of the axes of the sum.
  SumRuns(const Mesh& mesh, const FlatPieces& pieces, std::span<const std::vector<Axis>> levels)
      : mesh_(mesh), pieces_(pieces), levels_(levels) {
    for (const Axis axis : levels.front()) {
      if (std::ranges::find(pieces.axes, axis) == pieces.axes.end()) sharing_axes_.push_back(axis);
    }
  }

  /// Returns the axes whose ranks keep the same piece. These ranks sum different slices of the
  /// piece, and then gather the slices.
  const std::vector<Axis>& sharing_axes() const { return sharing_axes_; }

  /// Returns the run that a rank still has to sum after the first `level_count` levels.
  ElementRun run_after(int rank, size_t level_count) const {
    if (level_count == 0) return {0, pieces_.elements()};
    const ElementRun run = pieces_.run_of(mesh_, rank, summed_axes(level_count));
    if (sharing_axes_.empty()) return run;
    // The rank's position in Mesh::group(), computed without a list of all ranks of the group.
    int position = 0, ranks = 1;
    for (const Axis axis : sharing_axes_) {
      position += ranks * mesh_.coordinate(rank, axis);
      ranks *= mesh_.size(axis);
    }
    // The ranks that share a piece are of the first level. They slice the run that it leaves.
    const ElementRun first_run = pieces_.run_of(mesh_, rank, summed_axes(1));
    const int64_t begin = slice_begin(first_run.length, ranks, position);
    const int64_t end = slice_begin(first_run.length, ranks, position + 1);
    return intersection(run, {first_run.begin + begin, end - begin});
  }

 private:
  /// Returns the number of axes of the pieces, from the outermost split on, over which the first
  /// `level_count` levels have summed.
  size_t summed_axes(size_t level_count) const {
    const auto is_summed = [&](Axis axis) {
      return mesh_.size(axis) == 1 ||
             std::ranges::any_of(levels_.first(level_count), [&](const std::vector<Axis>& level) {
               return std::ranges::find(level, axis) != level.end();
             });
    };
    return static_cast<size_t>(std::ranges::find_if_not(pieces_.axes, is_summed) -
                               pieces_.axes.begin());
  }

  const Mesh& mesh_;
  const FlatPieces& pieces_;
  std::span<const std::vector<Axis>> levels_;
  std::vector<Axis> sharing_axes_;
};

/// The base of the operations that send runs of a value's elements, whatever its shape, or of a
/// unit's flat memory. They change one input, and have no gradient.
class FlatOperation : public Operation {
 public:
  explicit FlatOperation(std::vector<FlatLevel> levels) : levels_(std::move(levels)) {}
  Lane lane() const override { return Lane::network; }
  std::vector<std::vector<Axis>> group_axes() const override {
    std::vector<std::vector<Axis>> result;
    for (const FlatLevel& level : levels_) result.push_back(level.axes);
    return result;
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    return std::vector<Distribution>{};
  }
  std::vector<Spec> infer(std::span<const Spec>) const override { return {}; }

 protected:
  const std::vector<FlatLevel>& levels() const { return levels_; }
  /// Returns the bytes that a rank sends in a level, if all pieces are equally large.
  static WireBytes sent(const FlatLevel& level, double element_bytes) {
    const int ranks = level.pieces.ranks();
    const double elements = static_cast<double>(level.whole.length) * (ranks - 1) / ranks;
    return {level.axes, elements * element_bytes};
  }

 private:
  std::vector<FlatLevel> levels_;
};

/// The base of the sums. Updated input: this rank's addend, in whose memory the sum is taken.
class FlatSum : public FlatOperation {
 public:
  FlatSum(std::vector<FlatLevel> levels, WireFormat wire)
      : FlatOperation(std::move(levels)), wire_(wire) {}
  std::vector<int> updated_inputs() const override { return {0}; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const int64_t elements = levels().front().whole.length;
    TESSERA_EXPECT(*this, inputs.size() == 1 && inputs[0].shape.elements() == elements,
                   "{}; expected {} elements", inputs[0].shape.text(), elements);
    return {};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (target.device == Device::cpu) return 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < levels().size(); ++i) {
      bytes = std::max(bytes, level_workspace(i, wire_dtype(wire_, inputs[0].dtype)));
    }
    return bytes;
  }
  void run(const Execution& execution) const override {
    const Tensor& value = execution.inputs[0];
    const bool narrow = wire_dtype(wire_, value.dtype()) != value.dtype();
    sum(execution,
        narrow ? narrow_in_place(value, execution.stream) : value.reshape({value.elements()}));
    if (narrow) widen_in_place(value, execution.stream);
  }

 protected:
  double sent_element_bytes(const Spec& input) const {
    return static_cast<double>(dtype_size(wire_dtype(wire_, input.dtype)));
  }
  /// Returns the bytes of workspace of a level on a device, for elements of this type.
  virtual int64_t level_workspace(size_t level, DType dtype) const = 0;
  /// Sums this rank's addend, in one dim, over all levels.
  virtual void sum(const Execution& execution, const Tensor& memory) const = 0;

 private:
  WireFormat wire_;
};

/// The sum over all levels. A retyping node after this one gives the memory the type of the sum.
class TakeSum final : public FlatSum {
 public:
  using FlatSum::FlatSum;
  std::string_view name() const override { return "take_sum"; }
  std::string labels(std::span<const Spec> inputs) const override {
    return "-> += ?" + element_labels(inputs[0].shape.rank());
  }

  /// Returns the cost if all slices of a level are equally large. A level sends parts of the slice
  /// that the levels within it leave a rank.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    Cost cost{.bytes = operand_bytes(inputs, outputs, updated_inputs())};
    double elements = static_cast<double>(levels().front().whole.length);
    for (const FlatLevel& level : levels()) {
      const int ranks = level.pieces.ranks();
      const double sent = 2 * elements * (ranks - 1) / ranks;
      cost.wire.push_back({level.axes, sent * sent_element_bytes(inputs[0])});
      elements /= ranks;
    }
    return cost;
  }

 protected:
  int64_t level_workspace(size_t level, DType dtype) const override {
    const PieceLayout& slices = levels()[level].pieces;
    if (level + 1 == levels().size()) {
      return all_reduce_workspace(slices.elements(), dtype, slices.ranks());
    }
    return std::max(reduce_scatter_workspace(slices, dtype), all_gather_workspace(slices, dtype));
  }
  void sum(const Execution& execution, const Tensor& memory) const override {
    sum_from(0, execution, memory);
  }

 private:
  /// Sums over the ranks of a level and of all levels outside it. The ranks that would sum an empty
  /// slice over the outer levels all skip that together.
  void sum_from(size_t index, const Execution& execution, const Tensor& memory) const {
    const FlatLevel& level = levels()[index];
    Communicator& group = *execution.groups[index];
    const Tensor whole = level.whole_of(memory);
    if (index + 1 == levels().size()) {
      return group.all_reduce(execution.name, whole, whole, Reduction::sum, execution.call());
    }
    const Tensor slice = level.piece_of(memory);
    group.reduce_scatter(execution.name, level.pieces, whole, slice, execution.call());
    if (slice.elements() > 0) sum_from(index + 1, execution, memory);
    group.all_gather(execution.name, level.pieces, slice, whole, execution.call());
  }
};

/// The sum of flat memory, of which each rank gets its piece. The rest of the memory is undefined.
class TakePieceOfSum final : public FlatSum {
 public:
  /// Every level sums by a reduce-scatter, except that the last one gathers if `gathers_slices`.
  TakePieceOfSum(std::vector<FlatLevel> levels, bool gathers_slices, WireFormat wire)
      : FlatSum(std::move(levels), wire),
        scatters_(this->levels().size() - (gathers_slices ? 1 : 0)) {}
  std::string_view name() const override { return "take_piece_of_sum"; }
  std::string labels(std::span<const Spec>) const override { return "-> += ?f"; }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    Cost cost{.bytes = operand_bytes(inputs, outputs, updated_inputs())};
    for (const FlatLevel& level : levels()) {
      cost.wire.push_back(sent(level, sent_element_bytes(inputs[0])));
    }
    return cost;
  }

 protected:
  int64_t level_workspace(size_t level, DType dtype) const override {
    return level < scatters_ ? reduce_scatter_workspace(levels()[level].pieces, dtype) : 0;
  }
  void sum(const Execution& execution, const Tensor& memory) const override {
    for (size_t i = 0; i < levels().size(); ++i) {
      const FlatLevel& level = levels()[i];
      if (level.whole.length == 0) continue;
      const Tensor whole = level.whole_of(memory);
      const Tensor piece = level.piece_of(memory);
      Communicator& group = *execution.groups[i];
      if (i < scatters_) {
        group.reduce_scatter(execution.name, level.pieces, whole, piece, execution.call());
      } else {
        group.all_gather(execution.name, level.pieces, piece, whole, execution.call());
      }
    }
  }

 private:
  size_t scatters_;  // the number of levels that sum by a reduce-scatter
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
    Cost cost{.bytes = static_cast<double>(inputs[0].bytes() + inputs[1].bytes())};
    for (const FlatLevel& level : levels()) {
      cost.wire.push_back(sent(level, static_cast<double>(dtype_size(inputs[0].dtype))));
    }
    return cost;
  }
  void run(const Execution& execution) const override {
    for (size_t i = 0; i < levels().size(); ++i) {
      const FlatLevel& level = levels()[i];
      if (level.whole.length == 0) continue;
      execution.groups[i]->all_gather(execution.name, level.pieces,
                                      level.piece_of(execution.inputs[1]),
                                      level.whole_of(execution.inputs[1]), execution.call());
    }
  }
};

/// Input: flat memory. Output: this rank's piece, as a view with the type after the conversions.
class FlatPiece final : public Operation {
 public:
  FlatPiece(std::vector<Conversion> conversions, const ElementRun& run, DType dtype)
      : conversions_(std::move(conversions)),
        elements_(run.length),
        byte_offset_(run.begin * dtype_size(dtype)) {}
  std::string_view name() const override { return "flat_piece"; }
  std::string labels(std::span<const Spec>) const override { return "~f! -> piece"; }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const override {
    return std::vector{converted(mesh, inputs[0], conversions_)};
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return {{{elements_}, inputs[0].dtype, {}}};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int) const override { return View{0, byte_offset_}; }
  void run(const Execution&) const override {}

 private:
  std::vector<Conversion> conversions_;
  int64_t elements_;
  int64_t byte_offset_;
};

/// Returns the levels of a sum of `elements` elements over `axes`, which are listed by level,
/// innermost first. Each level sums the slice that the level before leaves this rank. The slices
/// are nearly equal, and may be empty.
std::vector<FlatLevel> sum_levels(const Program& program, int64_t elements,
                                  const std::vector<std::vector<Axis>>& axes) {
  std::vector<FlatLevel> levels;
  ElementRun whole{0, elements};
  for (const std::vector<Axis>& level_axes : axes) {
    const auto ranks = static_cast<int>(program.mesh().group(program.rank(), level_axes).size());
    const auto slice = [&](int, int position) {
      const int64_t begin = slice_begin(whole.length, ranks, position);
      return ElementRun{whole.begin + begin,
                        slice_begin(whole.length, ranks, position + 1) - begin};
    };
    levels.push_back(level_of(program, level_axes, whole, slice));
    whole = slice(0, levels.back().position);
  }
  return levels;
}

/// Returns the sum over these axes: level by level if `by_level`, otherwise in one step.
Value sum_over(Builder& builder, Value value, std::span<const Axis> axes, bool by_level,
               WireFormat wire) {
  if (axes.empty()) return value;
  std::vector<Conversion> conversions;
  for (const Axis axis : axes) conversions.push_back({axis, Placement::partial, invariant()});
  const ValueInfo& info = builder.program().info(value);
  const Mesh& mesh = builder.program().mesh();
  converted(mesh, {info.name, info.spec, info.differentiable}, conversions);  // checks the types
  const std::vector<Axis> summed = plan_move(builder.program(), value, conversions).axes;
  if (!summed.empty()) {
    const std::vector<std::vector<Axis>> in_one_step{summed};
    std::vector<FlatLevel> levels = sum_levels(builder.program(), info.spec.shape.elements(),
                                               by_level ? mesh.axes_by_level(summed) : in_one_step);
    builder.apply(std::make_shared<TakeSum>(std::move(levels), wire), {value});
  }
  const Value sum = builder.apply_single(make_retype(std::move(conversions)), {value});
  builder.replace(value, sum);
  return sum;
}

Value flat_piece(Builder& builder, Value whole, std::vector<Conversion> conversions,
                 const FlatPieces& pieces) {
  const Program& program = builder.program();
  const Spec& spec = builder.spec(whole);
  TESSERA_CHECK(spec.shape == Shape{pieces.elements()}, "pieces of {} elements of '{}' {}",
                pieces.elements(), program.info(whole).name, spec.shape.text());
  const ElementRun run = pieces.run_of(program.mesh(), program.rank());
  return builder.apply_single(std::make_shared<FlatPiece>(std::move(conversions), run, spec.dtype),
                              {whole});
}

}  // namespace

Value take_sum(Builder& builder, Value value, std::span<const Axis> axes) {
  return sum_over(builder, value, axes, /*by_level=*/false, WireFormat::fp32);
}

Value take_sum_by_level(Builder& builder, Value value, std::span<const Axis> axes,
                        WireFormat wire) {
  return sum_over(builder, value, axes, /*by_level=*/true, wire);
}

Value take_piece_of_sum(Builder& builder, Value value, const FlatPieces& pieces, WireFormat wire) {
  const Program& program = builder.program();
  const Mesh& mesh = program.mesh();
  const std::vector<Axis> axes =
      axes_of_sum(builder, value, {Placement::invariant, Placement::sharded});
  std::vector<Conversion> conversions;
  for (const Axis axis : pieces.axes) {
    conversions.push_back({axis, Placement::partial, pieces.type()});
  }
  for (const Axis axis : axes) {
    if (std::ranges::find(pieces.axes, axis) != pieces.axes.end()) continue;
    conversions.push_back({axis, Placement::partial, invariant()});
  }
  const ValueInfo& info = program.info(value);
  converted(mesh, {info.name, info.spec, info.differentiable}, conversions);  // checks the types
  const std::vector<std::vector<Axis>> by_level = mesh.axes_by_level(axes);
  if (!by_level.empty()) {
    const SumRuns runs(mesh, pieces, by_level);
    std::vector<FlatLevel> levels;
    for (size_t i = 0; i < by_level.size(); ++i) {
      levels.push_back(level_of(program, by_level[i], runs.run_after(program.rank(), i),
                                [&](int rank, int) { return runs.run_after(rank, i + 1); }));
    }
    const bool gathers_slices = !runs.sharing_axes().empty();
    if (gathers_slices) {
      levels.push_back(
          level_of(program, runs.sharing_axes(), pieces.run_of(mesh, program.rank()),
                   [&](int rank, int) { return runs.run_after(rank, by_level.size()); }));
    }
    builder.apply(std::make_shared<TakePieceOfSum>(std::move(levels), gathers_slices, wire),
                  {value});
  }
  const Value piece = flat_piece(builder, value, std::move(conversions), pieces);
  builder.replace(value, piece);
  return piece;
}

Value own_flat_piece(Builder& builder, Value whole, const FlatPieces& pieces) {
  std::vector<Conversion> conversions;
  for (const Axis axis : pieces.axes) {
    conversions.push_back({axis, Placement::invariant, pieces.type()});
  }
  return flat_piece(builder, whole, std::move(conversions), pieces);
}

void gather_pieces(Builder& builder, Value piece, Value whole, const FlatPieces& pieces) {
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
  std::vector<FlatLevel> levels;
  // The outermost level comes first, which makes the innermost split.
  for (size_t i = pieces.axes.size(); i-- > 0;) {
    if (mesh.size(pieces.axes[i]) == 1) continue;
    levels.push_back(level_of(program, {pieces.axes[i]}, pieces.run_of(mesh, program.rank(), i),
                              [&](int rank, int) { return pieces.run_of(mesh, rank, i + 1); }));
  }
  if (levels.empty()) return;
  builder.apply(std::make_shared<GatherPieces>(std::move(levels)), {piece, whole});
}

}  // namespace tessera
