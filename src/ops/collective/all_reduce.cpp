#include "comm/wire_bytes.h"
#include "ops/collective/move.h"

namespace tessera {
namespace {

/// Partial -> invariant or replicated. Input: this rank's addend. Output: the sum, which may be in
/// the input's memory.
class AllReduce final : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;
  std::string_view name() const override { return "all_reduce"; }
  int in_place_input(int) const override { return 0; }
  void run(const Execution& execution) const override {
    execution.group().all_reduce(execution.name, execution.inputs[0], execution.outputs[0],
                                 Reduction::sum, execution.call());
  }

 protected:
  int64_t staged_bytes(DType dtype) const override {
    return all_reduce_workspace(move().whole.elements(), dtype, move().ranks);
  }
  int64_t sent_bytes(int position, int64_t element_bytes) const override {
    return all_reduce_bytes(move().whole.elements(), move().ranks, position, element_bytes);
  }
};

}  // namespace

std::shared_ptr<const Operation> make_all_reduce(Move move) {
  return std::make_shared<AllReduce>(std::move(move));
}

}  // namespace tessera
