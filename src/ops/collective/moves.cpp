#include <cstring>

#include "comm/call_list.h"
#include "comm/device_kernels.h"
#include "comm/wire_bytes.h"
#include "ops/collective/move.h"

// The operations of all movements (program/conversion.h) but the all-to-all. The first three call
// one collective of the Communicator. In the others each rank copies in its own memory alone.

namespace tessera {
namespace {

/// Sharded or varying -> replicated or invariant. Input: this rank's piece. Output: the whole.
class AllGather final : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;
  std::string_view name() const override { return "all_gather"; }
  void run(const Execution& execution) const override {
    execution.group().all_gather(execution.name, *move().before, execution.inputs[0],
                                 execution.outputs[0], execution.call());
  }
  void list_calls(const CallListing& listing) const override {
    const Spec& whole = listing.outputs[0];
    listing.group().all_gather(listing.name, *move().before, whole.dtype, whole.shape);
  }

 protected:
  int64_t staged_bytes(const Target&, DType dtype) const override {
    return all_gather_workspace(*move().before, dtype);
  }
  int64_t sent_bytes(int position, int64_t element_bytes) const override {
    return all_gather_bytes(*move().before, position, element_bytes);
  }
};

/// Partial -> invariant or replicated. Input: this rank's addend. Output: the sum, which may be in
/// the input's memory.
class AllReduce final : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;
  std::string_view name() const override { return "all_reduce"; }
  int in_place_input(int) const override { return 0; }
  void run(const Execution& execution) const override {
    execution.group().all_reduce(execution.name, execution.inputs[0], execution.outputs[0],
                                 kind_of_sum(execution.target()), execution.call());
  }
  void list_calls(const CallListing& listing) const override {
    listing.group().all_reduce(listing.name, listing.inputs[0].dtype, listing.inputs[0].shape,
                               kind_of_sum(listing.target));
  }

 protected:
  int64_t staged_bytes(const Target& target, DType dtype) const override {
    return all_reduce_workspace(move().whole.elements(), dtype, move().ranks, kind_of_sum(target));
  }
  int64_t sent_bytes(int position, int64_t element_bytes) const override {
    return all_reduce_bytes(move().whole.elements(), move().ranks, position, element_bytes);
  }
};

/// Partial -> sharded or varying. Input: this rank's addend. Output: its piece of the sum.
class ReduceScatter final : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;
  std::string_view name() const override { return "reduce_scatter"; }
  void run(const Execution& execution) const override {
    execution.group().reduce_scatter(execution.name, *move().after, execution.inputs[0],
                                     execution.outputs[0], kind_of_sum(execution.target()),
                                     execution.call());
  }
  void list_calls(const CallListing& listing) const override {
    const Spec& whole = listing.inputs[0];
    listing.group().reduce_scatter(listing.name, *move().after, whole.dtype, whole.shape,
                                   kind_of_sum(listing.target));
  }

 protected:
  int64_t staged_bytes(const Target& target, DType dtype) const override {
    return reduce_scatter_workspace(*move().after, dtype, kind_of_sum(target));
  }
  int64_t sent_bytes(int position, int64_t element_bytes) const override {
    return reduce_scatter_bytes(*move().after, position, element_bytes);
  }
};

/// Returns the address of a tensor in a device's memory.
std::byte* memory_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.address()); }

/// Calls copy(offset in the whole, offset in the piece, size), in bytes, for the ranges of the
/// piece at a position.
template <typename Copy>
void for_bytes_of_piece(const PieceLayout& pieces, int position, DType dtype, const Copy& copy) {
  const int64_t element = dtype_size(dtype);
  pieces.for_each_range(position, [&](int64_t in_whole, int64_t in_piece, int64_t count) {
    copy(in_whole * element, in_piece * element, static_cast<size_t>(count * element));
  });
}

/// Invariant or replicated -> sharded. Input: the whole value. Output: this rank's piece of it.
class OwnPiece final : public MoveOperation {
 public:
  using MoveOperation::MoveOperation;
  std::string_view name() const override { return "own_piece"; }
  /// Returns the cost: only the piece of the whole is read.
  Cost cost(std::span<const Spec>, std::span<const Spec> outputs) const override {
    return {.bytes = 2 * static_cast<double>(outputs[0].bytes())};
  }
  void run(const Execution& execution) const override {
    const Tensor &whole = execution.inputs[0], &piece = execution.outputs[0];
    if (execution.stream != nullptr) {
      return copy_piece(PieceCopy::from_whole, *move().after, move().position,
                        {0, move().after->outer()}, dtype_size(whole.dtype()), memory_of(whole),
                        memory_of(piece), *execution.stream);
    }
    for_bytes_of_piece(*move().after, move().position, whole.dtype(),
                       [&](int64_t in_whole, int64_t in_piece, size_t n) {
                         std::memcpy(piece.raw() + in_piece, whole.raw() + in_whole, n);
                       });
  }
};

/// Sharded -> partial. Input: this rank's piece. Output: the whole value, with zeros in place of
/// the other ranks' pieces, so that the sum over the ranks is the value.
class ZerosAround final : public MoveOperation {
 public:
  using MoveOperation::MoveOperation;
  std::string_view name() const override { return "zeros_around"; }
  void run(const Execution& execution) const override {
    const Tensor &piece = execution.inputs[0], &whole = execution.outputs[0];
    if (execution.stream != nullptr) {
      execution.stream->fill_zero(whole.address(), whole.bytes());
      return copy_piece(PieceCopy::to_whole, *move().before, move().position,
                        {0, move().before->outer()}, dtype_size(whole.dtype()), memory_of(piece),
                        memory_of(whole), *execution.stream);
    }
    whole.fill_zero();
    for_bytes_of_piece(*move().before, move().position, whole.dtype(),
                       [&](int64_t in_whole, int64_t in_piece, size_t n) {
                         std::memcpy(whole.raw() + in_whole, piece.raw() + in_piece, n);
                       });
  }
};

/// Replicated or invariant -> partial: a value that all ranks have becomes a sum over the ranks.
/// The first rank of the axis keeps it, the others have zeros. The output may be in the input's
/// memory.
class OneKeeps final : public MoveOperation {
 public:
  using MoveOperation::MoveOperation;
  std::string_view name() const override { return "one_keeps"; }
  int in_place_input(int) const override { return 0; }
  void run(const Execution& execution) const override {
    const Tensor &from = execution.inputs[0], &to = execution.outputs[0];
    if (execution.stream != nullptr) {
      if (move().position > 0) return execution.stream->fill_zero(to.address(), to.bytes());
      if (from.address() != to.address()) {
        execution.stream->copy(to.address(), from.address(), from.bytes());
      }
      return;
    }
    if (move().position > 0) return to.fill_zero();
    if (from.address() != to.address()) to.copy_from(from);
  }
};

}  // namespace

std::shared_ptr<const Operation> make_operation(Move move) {
  switch (movement(move.conversions.front())) {
    case Movement::nothing:
      return make_retype(std::move(move.conversions));
    case Movement::all_gather:
      return std::make_shared<AllGather>(std::move(move));
    case Movement::reduce_scatter:
      return std::make_shared<ReduceScatter>(std::move(move));
    case Movement::all_reduce:
      return std::make_shared<AllReduce>(std::move(move));
    case Movement::own_piece:
      return std::make_shared<OwnPiece>(std::move(move));
    case Movement::zeros_around:
      return std::make_shared<ZerosAround>(std::move(move));
    case Movement::one_keeps:
      return std::make_shared<OneKeeps>(std::move(move));
    case Movement::all_to_all:
      return make_all_to_all(std::move(move));
  }
  throw InternalError("unknown Movement");
}

}  // namespace tessera
