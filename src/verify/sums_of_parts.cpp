#include "verify/sums_of_parts.h"

#include <algorithm>
#include <utility>

#include "base/bfloat16.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

/// Adds each addend to its sum. If there are no sums yet, they become copies of the addends.
void add(const std::vector<Tensor>& addends, std::vector<Tensor>& sums) {
  if (sums.empty()) {
    for (const Tensor& addend : addends) {
      sums.emplace_back(addend.shape(), addend.dtype()).copy_from(addend);
    }
    return;
  }
  for (size_t i = 0; i < addends.size(); ++i) {
    dispatch_wide(addends[i].dtype(), [&](auto type) {
      using T = decltype(type);
      const std::span<T> sum = sums[i].values<T>();
      const std::span<const T> addend = addends[i].values<T>();
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += addend[j];
    });
  }
}

}  // namespace

Batch part_of_batch(const Batch& batch, int part, int parts) {
  const int64_t rows = batch.rows / parts;
  const auto part_of = [&](const std::vector<int32_t>& whole) {
    const auto first = whole.begin() + part * rows * batch.context;
    return std::vector<int32_t>(first, first + rows * batch.context);
  };
  Batch result{.rows = rows,
               .context = batch.context,
               .tokens = part_of(batch.tokens),
               .targets = part_of(batch.targets),
               .document_starts = part_of(batch.document_starts),
               .positions = part_of(batch.positions)};
  result.target_count =
      std::ranges::count_if(result.targets, [](int32_t target) { return target >= 0; });
  return result;
}

SumsOfParts::SumsOfParts(const ParameterStore& store, const StepSums& sums, SumOrder order)
    : order_(std::move(order)) {
  for (const KeptTensor* gradient : store.tensors({Kept::gradient})) {
    gradients_.push_back(gradient->memory);
  }
  for (const StepSum& sum : sums.all()) step_sums_.push_back(store.sum(sum));
  for (const int ranks : order_.levels) levels_.push_back({.expected = ranks, .sums = {}});
  if (levels_.empty()) levels_.emplace_back();
  levels_.back().expected = 0;  // never reached: the outermost sums wait for write_back()
}

void SumsOfParts::add_part() {
  add(step_sums_, step_totals_);
  round_for_wire(gradients_);
  add_gradients(gradients_, 0);
}

void SumsOfParts::add_gradients(const std::vector<Tensor>& addends, size_t level) {
  LevelSums& current = levels_[level];
  if (current.added == 0) current.sums.clear();
  add(addends, current.sums);
  if (++current.added != current.expected) return;
  round_for_wire(current.sums);  // a rank of this group would send them to the other groups
  add_gradients(current.sums, level + 1);
  current.added = 0;
}

void SumsOfParts::round_for_wire(const std::vector<Tensor>& tensors) const {
  if (order_.wire == WireFormat::fp32) return;
  for (const Tensor& tensor : tensors) {
    if (tensor.dtype() != DType::f32) continue;
    for (float& element : tensor.values<float>()) element = static_cast<float>(BFloat16(element));
  }
}

void SumsOfParts::write_back() const {
  if (order_.rounds_total) round_for_wire(levels_.back().sums);
  for (size_t i = 0; i < gradients_.size(); ++i) {
    gradients_[i].copy_from(levels_.back().sums[i]);
  }
  for (size_t i = 0; i < step_sums_.size(); ++i) step_sums_[i].copy_from(step_totals_[i]);
}

}  // namespace tessera
