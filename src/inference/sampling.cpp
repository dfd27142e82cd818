#include "inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace tessera {
namespace {

void require_valid(const SamplingOptions& options) {
  if (!(options.temperature >= 0)) {
    throw Error("the temperature is {}; give 0 or more", options.temperature);
  }
  if (options.top_k < 0) throw Error("top-k is {}; give 0 or more", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw Error("top-p is {}; give more than 0 and at most 1", options.top_p);
  }
}

/// Throws Error on NaN, which has no order, and on infinite logits, which have no probability.
void require_finite(std::span<const float> logits) {
  const auto found =
      std::ranges::find_if(logits, [](float logit) { return !std::isfinite(logit); });
  if (found == logits.end()) return;
  throw Error(
      "the model gives token {} the logit {} where a finite number is expected: its weights are "
      "damaged or its training diverged; take an earlier checkpoint",
      found - logits.begin(), *found);
}

/// Returns the least number of probabilities, sorted from the largest, whose sum reaches top_p.
size_t nucleus_size(std::span<const double> sorted, double top_p) {
  double sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i];
    if (sum >= top_p) return i + 1;
  }
  return sorted.size();
}

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t index) {
  require_valid(options);
  require_finite(logits);
  if (options.temperature == 0) {
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(options.top_k));
  }
  // p_i = exp((logit_i - largest) / temperature) / sum
  const double largest = logits[static_cast<size_t>(order[0])];
  std::vector<double> probabilities;
  double exponential_sum = 0;
  for (const int32_t token : order) {
    probabilities.push_back(
        std::exp((logits[static_cast<size_t>(token)] - largest) / options.temperature));
    exponential_sum += probabilities.back();
  }
  for (double& probability : probabilities) probability /= exponential_sum;
  probabilities.resize(nucleus_size(probabilities, options.top_p));
  const double total = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  // Draw a point in [0, total), and return the token in whose interval it falls.
  double distance = CounterRandom(options.seed, "sample").uniform(index) * total;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    distance -= probabilities[i];
    if (distance < 0) return order[i];
  }
  // Rounding can leave a distance of 0 or more after the last token.
  return order[probabilities.size() - 1];
}

}  // namespace tessera
