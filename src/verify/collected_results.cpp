#include "verify/collected_results.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns a text that says how a rank's results of a step differ from those of the first rank.
std::string difference_text(size_t step, const LayoutStep& first, const LayoutStep& other) {
  const int64_t targets = first.results.targets;
  if (other.results.targets == targets) {
    return fmt::format("ranks report different results of step {}", step);
  }
  return fmt::format("ranks count {} and {} targets of step {}, which must be those of all ranks",
                     targets, other.results.targets, step);
}

}  // namespace

std::optional<size_t> WholeTensor::put(const TensorPiece& piece, const Tensor& part) {
  std::optional<size_t> first_difference;
  const auto element_bytes = static_cast<size_t>(dtype_size(values_.dtype()));
  const auto* source = static_cast<const std::byte*>(part.address());
  auto* const target = static_cast<std::byte*>(values_.address());
  for (int64_t i = 0; i < part.elements(); ++i, source += element_bytes) {
    const auto index = static_cast<size_t>(piece.element_of_whole(i));
    if (!known_[index]) {
      std::memcpy(target + index * element_bytes, source, element_bytes);
      known_[index] = true;
    } else if (!first_difference &&
               std::memcmp(target + index * element_bytes, source, element_bytes) != 0) {
      first_difference = index;
    }
  }
  return first_difference;
}

const Tensor& WholeTensor::values(const std::string& name) const {
  TESSERA_CHECK(std::ranges::find(known_, false) == known_.end(), "no rank holds some of {}", name);
  return values_;
}

void CollectedResults::put(const CollectedKey& key, const std::string& name,
                           const TensorPiece& piece, const Tensor& part) {
  const std::scoped_lock lock(mutex_);
  const auto whole = wholes_[key].try_emplace(name, piece.whole(), part.dtype()).first;
  const std::optional<size_t> differing = whole->second.put(piece, part);
  if (!differing) return;
  const ElementKey element{key, name, *differing};
  if (!first_difference_ || element < *first_difference_) first_difference_ = element;
}

void CollectedResults::put_bytes(const GradientBytes& rank_bytes) {
  const std::scoped_lock lock(mutex_);
  bytes_.counted += rank_bytes.counted;
  bytes_.expected += rank_bytes.expected;
}

void CollectedResults::put_step(int rank, size_t step_index, const LayoutStep& step) {
  const std::scoped_lock lock(mutex_);
  if (step_index >= steps_.size()) steps_.resize(step_index + 1);
  const bool is_new = steps_[step_index].emplace(rank, step).second;
  TESSERA_CHECK(is_new, "rank {} reports step {} twice", rank, step_index + 1);
}

void CollectedResults::put_stream(int rank, int ranks, ValueStream stream) {
  const std::scoped_lock lock(mutex_);
  streams_.resize(static_cast<size_t>(ranks));
  streams_[static_cast<size_t>(rank)] = std::move(stream);
}

LayoutResults CollectedResults::results() const {
  LayoutResults results{
      .steps = {}, .choices = choices_, .gradient_bytes = bytes_, .streams = streams_};
  for (const std::map<int, LayoutStep>& by_rank : steps_) {
    TESSERA_CHECK(!by_rank.empty(), "no rank reports step {}", results.steps.size() + 1);
    const LayoutStep& first = results.steps.emplace_back(by_rank.begin()->second);
    for (const auto& [rank, step] : by_rank) {
      if (results.unequal_results || step == first) continue;
      results.unequal_results = difference_text(results.steps.size(), first, step);
    }
  }
  for (const auto& [key, tensors] : wholes_) {
    NamedTensors& named = key.kind == Collected::gradient ? results.gradients.emplace_back()
                          : key.kind == Collected::weight ? results.weights
                                                          : results.computed_weights;
    for (const auto& [name, whole] : tensors) named.emplace(name, whole.values(name));
  }
  if (first_difference_) {
    results.unequal_copies = fmt::format(
        "ranks that hold the same piece of {} {} hold different numbers at element {}",
        word(first_difference_->key.kind), first_difference_->name, first_difference_->element);
  }
  return results;
}

}  // namespace tessera
