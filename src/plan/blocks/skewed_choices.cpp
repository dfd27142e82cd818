// Choices of experts whose loads have a given skew (see skewed_choices() in layer_blocks.h).

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "plan/blocks/layer_blocks.h"

namespace tessera {
namespace {

/// Returns the shares of a power law, (e + 1)^-exponent over their sum.
std::vector<double> power_law(int64_t experts, double exponent) {
  std::vector<double> shares;
  double sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    shares.push_back(std::pow(static_cast<double>(e + 1), -exponent));
    sum += shares.back();
  }
  for (double& share : shares) share /= sum;
  return shares;
}

/// Returns the power law whose first share is `first_share`, which is at least 1 / experts.
/// Searches the exponent by halving an interval.
std::vector<double> shares_with_first(int64_t experts, double first_share) {
  constexpr int kHalvings = 60;  // more than a double has bits
  // With the exponent 0 all shares are equal; with 64 the first is nearly 1.
  double low = 0, high = 64;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (power_law(experts, middle).front() < first_share ? low : high) = middle;
  }
  return power_law(experts, low);
}

}  // namespace

std::vector<int32_t> skewed_choices(int64_t tokens, int64_t experts, int64_t k, double skew) {
  const double max_skew = static_cast<double>(experts) / static_cast<double>(k);
  if (!(skew >= 1 && skew <= max_skew)) {
    throw Error(
        "a skew of {}: with {} of {} experts a token the fullest expert has 1 to {:.4g} times the "
        "balanced load",
        skew, k, experts, max_skew);
  }
  const auto choice_count = static_cast<double>(tokens * k);
  const std::vector<double> shares =
      shares_with_first(experts, skew / static_cast<double>(experts));
  // Choice i belongs to the token shuffled(i mod tokens). Each expert gets a contiguous range of at
  // most `tokens` choices, so no token gets an expert twice.
  const Permutation shuffled(static_cast<uint64_t>(tokens), 1);
  std::vector<int32_t> choices(static_cast<size_t>(tokens * k));
  double choices_so_far = 0;  // of the experts up to e, before rounding
  int64_t choice = 0;
  for (int64_t e = 0; e < experts; ++e) {
    choices_so_far += shares[static_cast<size_t>(e)] * choice_count;
    const int64_t end = e + 1 == experts ? tokens * k : std::llround(choices_so_far);
    TESSERA_CHECK(end - choice <= tokens, "{} rows of {} tokens for an expert", end - choice,
                  tokens);
    for (; choice < end; ++choice) {
      const auto token = static_cast<int64_t>(shuffled(static_cast<uint64_t>(choice % tokens)));
      choices[static_cast<size_t>(token * k + choice / tokens)] = static_cast<int32_t>(e);
    }
  }
  return choices;
}

}  // namespace tessera
