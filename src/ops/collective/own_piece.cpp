#include <cstring>

#include "comm/device_kernels.h"
#include "ops/collective/move.h"

namespace tessera {
namespace {

/// Returns the address of a tensor in a device's memory.
std::byte* memory_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.address()); }

/// Invariant or replicated -> sharded. Input: the whole. Output: this rank's piece.
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
    const int64_t size = dtype_size(whole.dtype());
    if (execution.stream != nullptr) {
      return copy_from_whole(*move().after, move().position, {0, move().after->outer()}, size,
                             memory_of(whole), memory_of(piece), *execution.stream);
    }
    move().after->for_each_block(
        move().position, [&](int64_t in_whole, int64_t in_piece, int64_t length) {
          std::memcpy(piece.raw() + in_piece * size, whole.raw() + in_whole * size,
                      static_cast<size_t>(length * size));
        });
  }
};

/// Sharded -> partial. Input: this rank's piece. Output: the whole, with zeros for the other
/// pieces.
class ZerosAround final : public MoveOperation {
 public:
  using MoveOperation::MoveOperation;
  std::string_view name() const override { return "zeros_around"; }
  void run(const Execution& execution) const override {
    const Tensor& piece = execution.inputs[0];
    const Tensor& whole = execution.outputs[0];
    const int64_t size = dtype_size(whole.dtype());
    if (execution.stream != nullptr) {
      execution.stream->fill_zero(whole.address(), whole.bytes());
      return copy_to_whole(*move().before, move().position, {0, move().before->outer()}, size,
                           memory_of(piece), memory_of(whole), *execution.stream);
    }
    whole.fill_zero();
    move().before->for_each_block(
        move().position, [&](int64_t in_whole, int64_t in_piece, int64_t length) {
          std::memcpy(whole.raw() + in_whole * size, piece.raw() + in_piece * size,
                      static_cast<size_t>(length * size));
        });
  }
};

}  // namespace

std::shared_ptr<const Operation> make_own_piece(Move move) {
  return std::make_shared<OwnPiece>(std::move(move));
}

std::shared_ptr<const Operation> make_zeros_around(Move move) {
  return std::make_shared<ZerosAround>(std::move(move));
}

}  // namespace tessera
