#include "ops/collective/move.h"

namespace tessera {
namespace {

/// Replicated or invariant -> partial: a term that all ranks have becomes one addend of a sum. The
/// first rank of the axis keeps it, the others have zeros. The output may be in the input's memory.
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

std::shared_ptr<const Operation> make_one_keeps(Move move) {
  return std::make_shared<OneKeeps>(std::move(move));
}

}  // namespace tessera
