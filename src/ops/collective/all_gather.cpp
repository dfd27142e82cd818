#include "comm/wire_bytes.h"
#include "ops/collective/move.h"

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

 protected:
  int64_t staged_bytes(DType dtype) const override {
    return all_gather_workspace(*move().before, dtype);
  }
  int64_t sent_bytes(int position, int64_t element_bytes) const override {
    return all_gather_bytes(*move().before, position, element_bytes);
  }
};

}  // namespace

std::shared_ptr<const Operation> make_all_gather(Move move) {
  return std::make_shared<AllGather>(std::move(move));
}

}  // namespace tessera
