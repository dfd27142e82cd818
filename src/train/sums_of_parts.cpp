#include "train/sums_of_parts.h"

#include <algorithm>

#include "tensor/dispatch.h"

namespace tessera {

Batch part_of(const Batch& batch, int part, int parts) {
  const int64_t rows = batch.rows / parts;
  const auto own = [&](const std::vector<int32_t>& whole) {
    const auto first = whole.begin() + part * rows * batch.context;
    return std::vector<int32_t>(first, first + rows * batch.context);
  };
  Batch result{.rows = rows,
               .context = batch.context,
               .tokens = own(batch.tokens),
               .targets = own(batch.targets),
               .document_starts = own(batch.document_starts),
               .positions = own(batch.positions)};
  result.target_count =
      std::ranges::count_if(result.targets, [](int32_t target) { return target >= 0; });
  return result;
}

SumsOfParts::SumsOfParts(const Executor& executor, const Chunk& chunk) {
  for (const ParameterUnit& unit : chunk.parameters.units()) {
    own_.push_back(executor.tensor("gradient:" + unit.name));
  }
  for (const StepSum& sum : chunk.sums()) own_.push_back(executor.tensor(sum.name));
}

void SumsOfParts::take() {
  if (sums_.empty()) {
    for (const Tensor& own : own_) {
      sums_.emplace_back(own.shape(), own.dtype()).copy_from(own);
    }
    return;
  }
  for (size_t i = 0; i < own_.size(); ++i) {
    dispatch_wide(own_[i].dtype(), [&](auto type) {
      using T = decltype(type);
      const std::span<T> sum = sums_[i].values<T>();
      const std::span<const T> own = own_[i].values<T>();
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += own[j];
    });
  }
}

void SumsOfParts::give() const {
  for (size_t i = 0; i < own_.size(); ++i) own_[i].copy_from(sums_[i]);
}

}  // namespace tessera
