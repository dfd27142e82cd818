#include "ops/collective/flat.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/wire_bytes.h"
#include "ops/collective/convert.h"
#include "ops/collective/move.h"
#include "ops/collective/narrow.h"
#include "ops/support.h"

namespace tessera {
namespace {

// Flat memory is split level by level. The innermost level (the ranks of a node) makes the
// outermost split: its ranks divide the memory first, and the ranks of the next level divide each
// of these parts. A sum takes the levels in this order, with one reduce-scatter each. Every one of
// them leaves a rank a smaller run of the memory to sum (SumRuns). If several ranks keep the same
// piece, each of them sums a slice of it, and at the end an all-gather among them joins the slices.
// A gather joins the pieces in the opposite order, with one all-gather per level.

/// One level of a sum or of a gather, as seen by one rank: the ranks of its group, the run of the
/// flat memory that they divide, and their pieces of this run.
struct FlatLevel {
  std::vector<Axis> axes;  // on which the coordinates of the group's ranks differ
  ElementRun whole;
  PieceLayout pieces;  // the pieces of the run, by position in the group
  int position = 0;    // the position of this rank in the group

  Tensor whole_of(const Tensor& memory) const { return memory.view(whole.begin, {whole.length}); }
  Tensor piece_of(const Tensor& memory) const {
    return memory.view(whole.begin + pieces.begin(position), {pieces.elements(position)});
  }
};

/// Returns the level over these axes, whose ranks divide the run `whole`. A rank of the group gets
/// the part of run_of(rank) that is within `whole`.
template <typename RunOf>
FlatLevel level_of(const Program& program, std::vector<Axis> axes, const ElementRun& whole,
                   RunOf&& run_of) {
  const std::vector<int> group = program.mesh().group(program.rank(), axes);
  std::vector<std::vector<ElementRun>> runs;
  for (const int rank : group) {
    const ElementRun run = common(run_of(rank), whole);
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
  /// `levels` are Mesh::by_level() of the axes of the sum.
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
    return common(run, {first_run.begin + begin, end - begin});
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

/// The base of the operations that send flat memory. They change one input, and have no gradient.
class FlatOperation : public Operation {
 public:
  explicit FlatOperation(std::vector<FlatLevel> levels) : levels_(std::move(levels)) {}
  Lane lane() const override { return Lane::network; }
  std::vector<std::vector<Axis>> meets() const override {
    std::vector<std::vector<Axis>> result;
    for (const FlatLevel& level : levels_) result.push_back(level.axes);
    return result;
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    return std::vector<Distribution>{};
  }
  std::vector<Spec> infer(std::span<const Spec>) const override { return {}; }
  std::vector<Value> gradient(Builder&, const Node& self, std::span<const Value>) const override {
    return std::vector<Value>(self.inputs.size());
  }

 protected:
  const std::vector<FlatLevel>& levels() const { return levels_; }
  /// Returns the bytes that a rank sends in a level, if all pieces are equally large.
  static WireBytes sent(const FlatLevel& level, int64_t element_bytes) {
    const int ranks = level.pieces.ranks();
    const double elements = static_cast<double>(level.whole.length) * (ranks - 1) / ranks;
    return {level.axes, elements * static_cast<double>(element_bytes)};
  }

 private:
  std::vector<FlatLevel> levels_;
};

/// Updated input: this rank's addend, flat memory. Afterwards this rank's piece of the memory has
/// the sum, and the rest is undefined.
class TakePieceOfSum final : public FlatOperation {
 public:
  /// Every level sums by a reduce-scatter, except that the last one gathers if `gathers_slices`.
  TakePieceOfSum(std::vector<FlatLevel> levels, bool gathers_slices, WireFormat wire)
      : FlatOperation(std::move(levels)),
        scatters_(this->levels().size() - (gathers_slices ? 1 : 0)),
        wire_(wire) {}
  std::string_view name() const override { return "take_piece_of_sum"; }
  std::string labels(std::span<const Spec>) const override { return "-> += ?f"; }
  std::vector<int> updated_inputs() const override { return {0}; }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    Cost cost{.bytes = operand_bytes(inputs, outputs, updated_inputs())};
    for (const FlatLevel& level : levels()) {
      cost.wire.push_back(sent(level, dtype_size(wire_dtype(wire_, inputs[0].dtype))));
    }
    return cost;
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (target.device == Device::cpu) return 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < scatters_; ++i) {
      bytes = std::max(
          bytes, reduce_scatter_workspace(levels()[i].pieces, wire_dtype(wire_, inputs[0].dtype)));
    }
    return bytes;
  }

  void run(const Execution& execution) const override {
    const Tensor& value = execution.inputs[0];
    const bool narrow = wire_dtype(wire_, value.dtype()) != value.dtype();
    const Tensor memory = narrow ? narrow_in_place(value, execution.stream) : value;
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
    if (narrow) widen_in_place(value, execution.stream);
  }

 private:
  size_t scatters_;  // the number of levels that sum by a reduce-scatter
  WireFormat wire_;
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
      cost.wire.push_back(sent(level, dtype_size(inputs[0].dtype)));
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
  const std::vector<std::vector<Axis>> by_level = mesh.by_level(axes);
  if (!by_level.empty()) {
    const SumRuns runs(mesh, pieces, by_level);
    std::vector<FlatLevel> levels;
    for (size_t i = 0; i < by_level.size(); ++i) {
      levels.push_back(level_of(program, by_level[i], runs.run_after(program.rank(), i),
                                [&](int rank) { return runs.run_after(rank, i + 1); }));
    }
    const bool gathers_slices = !runs.sharing_axes().empty();
    if (gathers_slices) {
      levels.push_back(level_of(program, runs.sharing_axes(), pieces.run_of(mesh, program.rank()),
                                [&](int rank) { return runs.run_after(rank, by_level.size()); }));
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
                              [&](int rank) { return pieces.run_of(mesh, rank, i + 1); }));
  }
  if (levels.empty()) return;
  builder.apply(std::make_shared<GatherPieces>(std::move(levels)), {piece, whole});
}

}  // namespace tessera
