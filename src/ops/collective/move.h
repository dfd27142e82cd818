#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/piece_layout.h"
#include "program/builder.h"
#include "program/conversion.h"

namespace tessera {

/// The movement of data, within or between ranks, that a conversion of a value's type needs
/// (program/conversion.h), as seen by one of the ranks.
struct Move {
  /// One conversion, or several on different axes that together give a sum to all ranks. They are
  /// in the order of the axes.
  std::vector<Conversion> conversions;
  Lane lane = Lane::exchanges;
  std::vector<Axis> axes;  ///< the axes of more than one rank
  int ranks = 1;           ///< the number of ranks on these axes
  int position = 0;        ///< the position of this rank among these ranks
  TypeOnAxis from;         ///< the type before, on the axis of the first conversion
  /// The shape that the ranks hold together. If a value is not split, each rank holds the whole.
  Shape whole;
  Shape own_shape_before;             ///< the shape that this rank holds before the conversion
  Shape own_shape_after;              ///< the shape that this rank holds after it
  std::optional<PieceLayout> before;  ///< the pieces of the whole, if the value is split before
  std::optional<PieceLayout> after;   ///< the pieces of the whole, if the value is split afterwards
  bool has_copies = false;            ///< whether other groups of ranks get the same values

  /// Returns whether every rank has the same piece before and after, so that nothing moves.
  bool stays() const { return before && after && before->hash() == after->hash(); }
};

/// Returns the move of a value by conversions that fit it. If another axis also splits the dim,
/// `whole` is the part that this other axis leaves to these ranks. Throws Error, which names the
/// value, the axis and the numbers, if the value's sizes do not fit the pieces.
Move plan_move(const Program& program, Value value, std::span<const Conversion> conversions,
               Lane lane);

/// Returns the distribution after conversions on different axes.
Distribution converted(const Mesh& mesh, TypedOperand value,
                       std::span<const Conversion> conversions);

/// Returns the dual of each conversion, for the gradient. `before` is the distribution of the value
/// before it was converted.
std::vector<Conversion> duals(std::span<const Conversion> conversions, const Distribution& before);

/// Applies conversions on different axes, in one node if nothing moves or if all are all-reduces,
/// and otherwise in one node each. What moves between ranks moves on `lane`. Throws as convert()
/// does.
Value convert_all(Builder& builder, Value value, std::span<const Conversion> conversions,
                  Lane lane = Lane::exchanges);

/// The base of the operations that move something. It derives shapes, types, the gradient (the dual
/// conversions) and the cost from the move. A derived class adds the kernel.
class MoveOperation : public Operation {
 public:
  explicit MoveOperation(Move move) : move_(std::move(move)) {}

  std::string labels(std::span<const Spec> inputs) const override;
  std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const override;
  std::vector<Spec> infer(std::span<const Spec> inputs) const override;
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override;
  bool takes_wide_gradients() const override { return true; }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override;
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override;

 protected:
  const Move& move() const { return move_; }
  /// Returns the bytes of workspace on a device, by default none. The processor needs none.
  virtual int64_t staged_bytes(const Target&, DType /*dtype*/) const { return 0; }
  /// Returns how the ranks sum.
  Reduction kind_of_sum(const Target& target) const {
    return tessera::kind_of_sum(target, move_.has_copies);
  }
  /// Returns the bytes that the rank at `position` sends. By default the ranks send nothing.
  virtual int64_t sent_bytes(int /*position*/, int64_t /*element_bytes*/) const { return 0; }

 private:
  Move move_;
};

/// The base of the operations in which the ranks of the axes send data to each other.
class CollectiveOperation : public MoveOperation {
 public:
  using MoveOperation::MoveOperation;
  Lane lane() const override { return move().lane; }
  std::vector<std::vector<Axis>> group_axes() const override { return {move().axes}; }
};

/// Returns the operation of conversions that move nothing: the input's memory under another type.
std::shared_ptr<const Operation> make_retype(std::vector<Conversion> conversions);

/// Returns the operation of a move's movement (see Movement in program/conversion.h).
std::shared_ptr<const Operation> make_operation(Move move);
std::shared_ptr<const Operation> make_all_to_all(Move move);

}  // namespace tessera
