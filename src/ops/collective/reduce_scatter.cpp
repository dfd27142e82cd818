#include "comm/wire_bytes.h"
#include "ops/collective/move.h"

namespace tessera {
namespace {

/// Partial -> sharded or varying. Input: this rank's addend. Output: its piece of the sum.
class ReduceScatter final : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;
  std::string_view name() const override { return "reduce_scatter"; }
  void run(const Execution& execution) const override {
    execution.group().reduce_scatter(execution.name, *move().after, execution.inputs[0],
                                     execution.outputs[0], execution.call());
  }

 protected:
  int64_t staged_bytes(DType dtype) const override {
    return reduce_scatter_workspace(*move().after, dtype);
  }
  int64_t sent_bytes(int position, int64_t element_bytes) const override {
    return reduce_scatter_bytes(*move().after, position, element_bytes);
  }
};

}  // namespace

std::shared_ptr<const Operation> make_reduce_scatter(Move move) {
  return std::make_shared<ReduceScatter>(std::move(move));
}

}  // namespace tessera
