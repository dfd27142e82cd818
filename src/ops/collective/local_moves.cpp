#include <cstring>

#include "comm/device_kernels.h"
#include "ops/collective/move.h"

namespace tessera {
namespace {

// The conversions (program/conversion.h) for which each rank copies in its own memory alone.

/// Returns the address of a tensor in a device's memory.
std::byte* memory_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.address()); }

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
    const Tensor& whole = execution.inputs[0];
    const Tensor& piece = execution.outputs[0];
    const int64_t element_bytes = dtype_size(whole.dtype());
    if (execution.stream != nullptr) {
      return copy_from_whole(*move().after, move().position, {0, move().after->outer()},
                             element_bytes, memory_of(whole), memory_of(piece), *execution.stream);
    }
    move().after->for_each_range(move().position,
                                 [&](int64_t whole_offset, int64_t piece_offset, int64_t length) {
                                   std::memcpy(piece.raw() + piece_offset * element_bytes,
                                               whole.raw() + whole_offset * element_bytes,
                                               static_cast<size_t>(length * element_bytes));
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
    const Tensor& piece = execution.inputs[0];
    const Tensor& whole = execution.outputs[0];
    const int64_t element_bytes = dtype_size(whole.dtype());
    if (execution.stream != nullptr) {
      execution.stream->fill_zero(whole.address(), whole.bytes());
      return copy_to_whole(*move().before, move().position, {0, move().before->outer()},
                           element_bytes, memory_of(piece), memory_of(whole), *execution.stream);
    }
    whole.fill_zero();
    move().before->for_each_range(move().position,
                                  [&](int64_t whole_offset, int64_t piece_offset, int64_t length) {
                                    std::memcpy(whole.raw() + whole_offset * element_bytes,
                                                piece.raw() + piece_offset * element_bytes,
                                                static_cast<size_t>(length * element_bytes));
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
    const Tensor& from = execution.inputs[0];
    const Tensor& to = execution.outputs[0];
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

std::shared_ptr<const Operation> make_own_piece(Move move) {
  return std::make_shared<OwnPiece>(std::move(move));
}

std::shared_ptr<const Operation> make_zeros_around(Move move) {
  return std::make_shared<ZerosAround>(std::move(move));
}

std::shared_ptr<const Operation> make_one_keeps(Move move) {
  return std::make_shared<OneKeeps>(std::move(move));
}

}  // namespace tessera
