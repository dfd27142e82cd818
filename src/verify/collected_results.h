#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/words.h"
#include "state/parameter_store.h"
#include "verify/layout_run.h"

namespace tessera {

/// A whole tensor, put together from the pieces of several ranks, which may hold the same piece.
class WholeTensor {
 public:
  WholeTensor(const Shape& shape, DType dtype)
      : values_(shape, dtype), known_(static_cast<size_t>(shape.elements())) {}

  /// Copies the elements that are not known yet. Returns the index, in the whole tensor, of the
  /// first element that an earlier piece has given with other bits; none if there is none.
  std::optional<size_t> put(const TensorPiece& piece, const Tensor& part);
  /// Returns the whole tensor. Throws InternalError if the pieces left out some of it.
  const Tensor& values(const std::string& name) const;

 private:
  Tensor values_;
  std::vector<bool> known_;
};

/// The kinds of results that are put together from pieces.
enum class Collected { gradient, weight, computed_weight };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<Collected>{"gradient", "weight",
                                                                     "computed weight"};
/// A kind of result, and its step.
struct CollectedKey {
  Collected kind = Collected::weight;
  size_t step = 0;  ///< for gradients only
  bool operator<(const CollectedKey& other) const {
    return std::tie(kind, step) < std::tie(other.kind, other.step);
  }
};

/// The results of all ranks of a layout, put together. Thread-safe but for results().
class CollectedResults {
 public:
  /// Adds a rank's piece of a tensor. The results name an element in which two ranks differ.
  void put(const CollectedKey& key, const std::string& name, const TensorPiece& piece,
           const Tensor& part);
  /// Adds the report of a rank on a step. The results hold the first rank's reports, and name the
  /// first step of which another rank reported something else.
  void put_step(int rank, size_t step_index, const LayoutStep& step);
  void put_choices(StepChoices step) { choices_.push_back(std::move(step)); }
  void put_bytes(const GradientBytes& rank_bytes);
  void put_stream(int rank, int ranks, ValueStream stream);
  LayoutResults results() const;

 private:
  /// Identifies an element of a tensor. The order does not depend on which rank comes first.
  struct ElementKey {
    CollectedKey key;
    std::string name;
    size_t element = 0;
    bool operator<(const ElementKey& other) const {
      return std::tie(key, name, element) < std::tie(other.key, other.name, other.element);
    }
  };

  std::mutex mutex_;
  std::vector<std::map<int, LayoutStep>> steps_;  // by rank
  std::vector<StepChoices> choices_;              // of one rank, by step
  GradientBytes bytes_;
  std::optional<ElementKey> first_difference_;                         // between ranks' copies
  std::vector<ValueStream> streams_;                                   // by rank
  std::map<CollectedKey, std::map<std::string, WholeTensor>> wholes_;  // by name
};

/// A receiver of one rank's results. All ranks call its methods in the same order.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  /// Adds this rank's pieces of a parameter's gradient or weights. `shard` is this rank's.
  virtual void put(const CollectedKey& key, const KeptTensor& tensor, const StateShard& shard) = 0;
  virtual void put_step(size_t step_index, const LayoutStep& step) = 0;
  virtual void put_choices(StepChoices step) = 0;
  virtual void put_bytes(const GradientBytes& rank_bytes) = 0;
  virtual void put_stream(ValueStream stream) = 0;
};

/// Trains on one rank of a trial and gives the results to `sink`. `groups` are those of the rank.
/// Ranks of a process share what overlap() finds for the trial.
void run_layout_rank(const LayoutTrial& trial, int threads, RankGroups& groups,
                     const TrialBatches& batches, FoundOrders& found, ResultSink& sink);

}  // namespace tessera
