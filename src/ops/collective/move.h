#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/piece_layout.h"
#include "program/builder.h"
#include "program/conversion.h"

namespace tessera {

/// A conversion that moves something, as one of the ranks sees it.
struct Move {
  /// One, or several of sums that all ranks get, each on another axis, in the order of the axes.
  std::vector<Conversion> conversions;
  std::vector<Axis> axes;  ///< those of more than one rank
  int ranks = 1;           ///< that meet
  int position = 0;        ///< of this rank among them
  TypeOnAxis from;         ///< the type before, on the axis of the first conversion
  /// What the ranks hold together. A value that is not split is the whole on each of them.
  Shape whole;
  Shape own_before;  ///< what this rank has
  Shape own_after;
  std::optional<PieceLayout> before;  ///< the pieces of the whole, if the value is split before
  std::optional<PieceLayout> after;   ///< the same if it is split afterwards

  /// Whether every rank has afterwards what it has now.
  bool stays() const { return before && after && before->fingerprint() == after->fingerprint(); }
};

/// Finds out how a value moves in conversions that fit it. If another axis splits the same dim,
/// what the ranks hold together is the part that the other axis leaves them. Throws Error, which
/// names the value, the axis and the numbers, if the pieces do not divide.
Move plan_move(const Program& program, Value value, std::span<const Conversion> conversions);

/// The distribution after conversions on different axes.
Distribution converted(const Mesh& mesh, TypedOperand value,
                       std::span<const Conversion> conversions);

/// The conversions of the gradient, in their order. `before` is how the converted value lies.
std::vector<Conversion> duals(std::span<const Conversion> conversions, const Distribution& before);

/// Conversions on different axes: one node where nothing moves, or where all ranks get a sum.
/// Throws as convert() does.
Value convert_all(Builder& builder, Value value, std::span<const Conversion> conversions);

/// What the operations of conversions that move something have in common.
class MoveOperation : public Operation {
 public:
  explicit MoveOperation(Move move) : move_(std::move(move)) {}

  std::string labels(std::span<const Spec> inputs) const override;
  std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const override;
  std::vector<Spec> infer(std::span<const Spec> inputs) const override;
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> of_outputs) const override;
  bool takes_wide_gradients() const override { return true; }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override;
  /// On a device, what staged_bytes() says.
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override;

 protected:
  const Move& move() const { return move_; }
  /// The bytes of workspace that it takes on a device. By default it takes none.
  virtual int64_t staged_bytes(DType dtype) const;
  /// The bytes that the rank at a position puts on the wire. By default none meets another.
  virtual int64_t sent_bytes(int position, int64_t element_bytes) const;

 private:
  Move move_;
};

/// An operation in which the ranks meet.
class CollectiveOperation : public MoveOperation {
 public:
  using MoveOperation::MoveOperation;
  Lane lane() const override { return Lane::network; }
  std::vector<std::vector<Axis>> meets() const override { return {move().axes}; }
};

/// Conversions that move nothing. They are the input's memory under another type.
std::shared_ptr<const Operation> make_retype(std::vector<Conversion> conversions);

/// The operations of movements.
std::shared_ptr<const Operation> make_all_gather(Move move);
std::shared_ptr<const Operation> make_reduce_scatter(Move move);
std::shared_ptr<const Operation> make_all_reduce(Move move);
std::shared_ptr<const Operation> make_own_piece(Move move);
std::shared_ptr<const Operation> make_zeros_around(Move move);
std::shared_ptr<const Operation> make_one_keeps(Move move);
std::shared_ptr<const Operation> make_all_to_all(Move move);

}  // namespace tessera
