#include "ops/collective/move.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/words.h"
#include "comm/piece_indices.h"
#include "ops/support.h"

namespace tessera {
namespace {

// plan_move() computes what each rank holds before and after a conversion, and checks the sizes.
// The shapes, types, gradient and cost of a MoveOperation follow from its plan.

/// Returns for uneven tokens the number of rows of each rank of an axis. If other axes of the view
/// no longer split the tokens, a rank has the rows of all ranks of these axes.
std::vector<int64_t> rows_of_tokens(const Program& program, const Distribution& distribution,
                                    Axis axis) {
  const Mesh& mesh = program.mesh();
  const Distribution& origin = *distribution.on(axis).pieces.origin;
  std::vector<Axis> joined;
  for (const Axis other : mesh.axes_of(distribution.view())) {
    if (!distribution.on(other).split()) joined.push_back(other);
  }
  const int64_t all = logical_extent(mesh, origin, 0, 0);  // from the listed sizes
  std::vector<int64_t> rows;
  for (const int member : mesh.group(program.rank(), std::vector{axis})) {
    rows.push_back(0);
    for (const int rank : joined.empty() ? std::vector{member} : mesh.group(member, joined)) {
      rows.back() += std::ssize(piece_of_dim(mesh, origin, 0, all, rank));
    }
  }
  return rows;
}

/// Returns the type on an axis in the form that collectives take: varying rows are pieces in the
/// order of the ranks.
TypeOnAxis as_pieces(const Program& program, const Distribution& distribution, Axis axis) {
  const TypeOnAxis& type = distribution.on(axis);
  if (type.placement != Placement::varying) return type;
  if (!has_uneven_tokens(type)) return sharded(type.dim);
  return sharded(type.dim,
                 {.kind = PieceKind::uneven, .sizes = rows_of_tokens(program, distribution, axis)});
}

/// Computes the shapes and pieces of a move. Errors begin with `context`.
class MoveShapes {
 public:
  MoveShapes(std::string context, Move& move) : context_(std::move(context)), move_(move) {}

  /// Sets the whole, own_shape_after and the layouts of the move, given own_shape_before and its
  /// type on the axis before and after.
  void fill(const TypeOnAxis& before, const TypeOnAxis& after) {
    move_.whole = move_.own_shape_before;
    if (before.split()) {
      move_.whole = joined(before);
      move_.before = layout(before);
    }
    move_.own_shape_after = move_.whole;
    if (after.split()) {
      move_.after = layout(after);
      move_.own_shape_after = own_piece(after);
    }
  }

 private:
  Shape joined(const TypeOnAxis& type) const {
    const int64_t own = move_.own_shape_before[type.dim];
    if (type.pieces.kind == PieceKind::uneven) require_own_size(type, own);
    return joined_shape(move_.own_shape_before, type, move_.ranks);
  }

  void require_own_size(const TypeOnAxis& type, int64_t own) const {
    require_sizes(type);
    const int64_t expected = type.pieces.sizes[static_cast<size_t>(move_.position)] * type.repeats;
    if (own == expected) return;
    throw Error("{}: its piece has {} elements of dim {}; expected {}", context_, own, type.dim,
                expected);
  }

  PieceLayout layout(const TypeOnAxis& type) const {
    require_sizes(type);
    if (type.dim >= move_.whole.rank()) {
      throw DistributionError(
          fmt::format("{}: a value {} has no dim {}", context_, move_.whole.text(), type.dim));
    }
    if (move_.whole[type.dim] % type.repeats != 0) {
      throw Error("{}: {} elements of dim {} do not divide into {} repeats", context_,
                  move_.whole[type.dim], type.dim, type.repeats);
    }
    try {
      return pieces_of(move_.whole, type, move_.ranks);
    } catch (const Error& error) {
      throw Error("{}: dim {} of the whole {}: {}", context_, type.dim, move_.whole.text(),
                  error.what());
    }
  }

  Shape own_piece(const TypeOnAxis& type) const {
    const int64_t extent = move_.whole[type.dim] / type.repeats;
    int64_t length = 0;
    for (const ElementRun& run : piece_runs(extent, move_.position, move_.ranks, type.pieces)) {
      length += run.length;
    }
    return move_.whole.with_dim(type.dim, length * type.repeats);
  }

  void require_sizes(const TypeOnAxis& type) const {
    if (type.pieces.kind != PieceKind::uneven ||
        std::ssize(type.pieces.sizes) == std::ptrdiff_t{move_.ranks}) {
      return;
    }
    throw DistributionError(fmt::format("{}: {} uneven pieces for {} ranks", context_,
                                        type.pieces.sizes.size(), move_.ranks));
  }

  std::string context_;
  Move& move_;
};

}  // namespace

Move plan_move(const Program& program, Value value, std::span<const Conversion> conversions,
               Lane lane) {
  const Mesh& mesh = program.mesh();
  const ValueInfo& info = program.info(value);
  Move move{.conversions = {conversions.begin(), conversions.end()},
            .lane = lane,
            .own_shape_before = info.spec.shape};
  // The ranks have the same order, whatever the order in which a caller names the axes.
  std::ranges::sort(move.conversions, {},
                    [](const Conversion& conversion) { return conversion.axis.index; });
  for (const Conversion& conversion : move.conversions) {
    if (mesh.size(conversion.axis) == 1) continue;
    move.axes.push_back(conversion.axis);
    move.position += move.ranks * mesh.coordinate(program.rank(), conversion.axis);
    move.ranks *= mesh.size(conversion.axis);
  }
  const Conversion& first = move.conversions.front();
  const Distribution& before = info.spec.distribution;
  const Distribution after =
      converted(mesh, {info.name, info.spec, info.differentiable}, move.conversions);
  move.from = before.on(first.axis);
  move.has_copies = after.has_copies_beyond(mesh, move.axes);
  MoveShapes(fmt::format("{} -> {} over {} ranks of {}: '{}' {}", move.from.text(), first.to.text(),
                         move.ranks, mesh.name(first.axis), info.name, info.spec.shape.text()),
             move)
      .fill(as_pieces(program, before, first.axis), as_pieces(program, after, first.axis));
  TESSERA_CHECK(conversions.size() == 1 || (!move.before && !move.after),
                "'{}' is split over several axes at once: {}, then {}", info.name,
                before.text(mesh), after.text(mesh));
  return move;
}

Distribution converted(const Mesh& mesh, TypedOperand value,
                       std::span<const Conversion> conversions) {
  for (const Conversion& conversion : conversions) {
    value.spec.distribution = converted(mesh, value, conversion);
  }
  return value.spec.distribution;
}

std::vector<Conversion> duals(std::span<const Conversion> conversions, const Distribution& before) {
  std::vector<Conversion> result;
  for (const Conversion& conversion : conversions) {
    result.push_back(dual(conversion, before.on(conversion.axis)));
  }
  return result;
}

std::string MoveOperation::labels(std::span<const Spec> inputs) const {
  const auto moves = [&](int dim) {
    const auto splits = [dim](const TypeOnAxis& type) { return type.split() && type.dim == dim; };
    const Conversion& first = move_.conversions.front();
    return splits(first.to) || splits(move_.from);
  };
  std::string before = "~", after;
  for (int dim = 0; dim < inputs[0].shape.rank(); ++dim) {
    const char name = static_cast<char>('a' + dim);
    before += moves(dim) ? fmt::format(" {}!", name) : fmt::format(" {}", name);
    after += moves(dim) ? fmt::format(" {}_after", name) : fmt::format(" {}", name);
  }
  return before + " ->" + after;
}

std::optional<std::vector<Distribution>> MoveOperation::distributions(
    const Mesh& mesh, std::span<const TypedOperand> inputs) const {
  return std::vector{converted(mesh, inputs[0], move_.conversions)};
}

std::vector<Spec> MoveOperation::infer(std::span<const Spec> inputs) const {
  TESSERA_EXPECT(*this, inputs.size() == 1 && inputs[0].shape == move_.own_shape_before,
                 "{}; expected {}", inputs[0].shape.text(), move_.own_shape_before.text());
  return {{move_.own_shape_after, inputs[0].dtype, {}}};
}

std::vector<Value> MoveOperation::gradient(Builder& builder, const Node& self,
                                           std::span<const Value> output_gradients) const {
  const Distribution before = builder.spec(self.inputs[0]).distribution;
  return {convert_all(builder, output_gradients[0], duals(move_.conversions, before), move_.lane)};
}

Cost MoveOperation::cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const {
  Cost cost{.bytes = operand_bytes(inputs, outputs, updated_inputs())};
  double sent = 0;
  for (int position = 0; position < move_.ranks; ++position) {
    sent += static_cast<double>(sent_bytes(position, dtype_size(inputs[0].dtype)));
  }
  if (sent > 0) cost.wire.push_back({move_.axes, sent / move_.ranks});
  return cost;
}

int64_t MoveOperation::workspace_bytes(const Target& target, std::span<const Spec> inputs) const {
  return target.device == Device::cpu ? 0 : staged_bytes(target, inputs[0].dtype);
}

}  // namespace tessera
