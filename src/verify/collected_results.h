#pragma once

#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/words.h"
#include "comm/tensor_piece.h"
#include "verify/layout_run.h"

namespace tessera {

/// A whole tensor while the ranks' pieces are put into it.
class WholeTensor {
 public:
  WholeTensor(const Shape& shape, DType dtype)
      : values_(shape, dtype), known_(static_cast<size_t>(shape.elements())) {}

  /// Takes what is not known yet. Returns the first element of the whole, if there is one, of which
  /// another rank has other bits.
  std::optional<size_t> put(const TensorPiece& piece, const Tensor& part);
  /// Throws InternalError if the pieces did not make a whole.
  const Tensor& values(const std::string& name) const;

 private:
  Tensor values_;
  std::vector<bool> known_;
};

/// The results that are put together of the ranks' pieces.
enum class Collected { gradient, weight, computed_weight };
template <>
inline constexpr std::array<std::string_view, 3> kWords<Collected>{"gradient", "weight",
                                                                   "computed weight"};
struct CollectedKey {
  Collected what = Collected::weight;
  size_t step = 0;  ///< of a gradient
  bool operator<(const CollectedKey& other) const {
    return std::tie(what, step) < std::tie(other.what, other.step);
  }
};

/// Returns the pieces of a tensor that a rank has, as they follow each other in its memory.
using PiecesOfRank = std::function<std::vector<TensorPiece>(int rank)>;

/// What the ranks of a layout give, put together. Several threads may call it.
class CollectedResults {
 public:
  /// Notes it in the results if another rank that holds some of the piece has other numbers.
  void put(const CollectedKey& key, const std::string& name, const TensorPiece& piece,
           const Tensor& part);
  /// Takes what a rank reports of a step. The results have that of the first rank, and a note if
  /// another rank reported something else.
  void put_step(int rank, size_t number, const LayoutStep& step);
  void put_choices(StepChoices step) { choices_.push_back(std::move(step)); }
  /// Adds a rank's bytes to those of the others.
  void put_bytes(const GradientBytes& of_rank);
  void put_stream(int rank, int ranks, ValueStream stream);
  LayoutResults results() const;

 private:
  /// An element of a tensor. The order is the same whichever rank comes first.
  struct CopyPlace {
    CollectedKey key;
    std::string name;
    size_t element = 0;
    bool operator<(const CopyPlace& other) const {
      return std::tie(key, name, element) < std::tie(other.key, other.name, other.element);
    }
  };

  std::mutex mutex_;
  std::vector<std::map<int, LayoutStep>> steps_;  // by rank
  std::vector<StepChoices> choices_;              // of one rank
  GradientBytes bytes_;
  std::optional<CopyPlace> first_other_;                               // of ranks' copies
  std::vector<ValueStream> streams_;                                   // by rank
  std::map<CollectedKey, std::map<std::string, WholeTensor>> wholes_;  // by name
};

/// Takes what one rank gives, in the order in which it comes. It is the same on all ranks.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  /// What this rank holds of a parameter's gradient or weights. `pieces` says it for every rank.
  virtual void put(const CollectedKey& key, const std::string& name, const Tensor& values,
                   const PiecesOfRank& pieces) = 0;
  virtual void put_step(size_t number, const LayoutStep& step) = 0;
  virtual void put_choices(StepChoices step) = 0;
  virtual void put_bytes(const GradientBytes& of_rank) = 0;
  virtual void put_stream(ValueStream stream) = 0;
};

/// Trains on one rank of a trial's mesh, whose groups these are.
void run_layout_rank(const LayoutTrial& trial, int threads, RankGroups& groups,
                     const TrialBatches& batches, ResultSink& sink);

}  // namespace tessera
