#include "comm/wire_bytes.h"
#include "ops/collective/move.h"

namespace tessera {
namespace {

// The conversions (program/conversion.h) that call one collective of the Communicator.

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

std::shared_ptr<const Operation> make_all_gather(Move move) {
  return std::make_shared<AllGather>(std::move(move));
}

std::shared_ptr<const Operation> make_all_reduce(Move move) {
  return std::make_shared<AllReduce>(std::move(move));
}

std::shared_ptr<const Operation> make_reduce_scatter(Move move) {
  return std::make_shared<ReduceScatter>(std::move(move));
}

}  // namespace tessera
