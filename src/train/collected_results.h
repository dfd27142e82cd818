#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/tensor_piece.h"
#include "train/layout_run.h"

namespace tessera {

/// A whole tensor while the ranks' pieces are put into it.
class WholeTensor {
 public:
  WholeTensor(const Shape& shape, DType dtype)
      : values_(shape, dtype), known_(static_cast<size_t>(shape.elements())) {}

  /// Throws Error, with the name, if another rank that holds some of the piece has other numbers.
  void put(const TensorPiece& piece, const Tensor& part, const std::string& name);
  /// Throws InternalError if the pieces did not make a whole.
  const Tensor& values(const std::string& name) const;

 private:
  Tensor values_;
  std::vector<bool> known_;
};

/// What the ranks of a layout give, put together. Several threads may call it.
class CollectedResults {
 public:
  /// `kind` is "gradient" or "weight".
  void put(const std::string& kind, const std::string& name, const TensorPiece& piece,
           const Tensor& part);
  /// Throws Error if another rank reported something else.
  void put_step(size_t number, const LayoutStep& step);
  void put_choices(StepChoices step) { choices_.push_back(std::move(step)); }
  void put_stream(int rank, int ranks, ValueStream stream);
  LayoutResults results() const;

 private:
  std::mutex mutex_;
  std::vector<LayoutStep> steps_;
  std::vector<StepChoices> choices_;                                  // of one rank
  std::vector<ValueStream> streams_;                                  // by rank
  std::map<std::string, std::map<std::string, WholeTensor>> wholes_;  // by kind and name
};

/// Takes what one rank gives, in the order in which it comes. It is the same on all ranks.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  /// What this rank holds of a parameter's gradient or weights (see ParameterState::held).
  virtual void put(const std::string& kind, const ParameterStore& store, size_t parameter,
                   const Tensor& held) = 0;
  virtual void put_step(size_t number, const LayoutStep& step) = 0;
  virtual void put_choices(StepChoices step) = 0;
  virtual void put_stream(ValueStream stream) = 0;
};

/// Trains on one rank of a trial's mesh, whose groups these are.
void run_layout_rank(const LayoutTrial& trial, int threads, RankGroups& groups,
                     std::span<const std::vector<Batch>> steps, ResultSink& sink);

}  // namespace tessera
