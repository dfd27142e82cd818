#include "data/mix.h"

#include <cmath>
#include <numeric>

#include "base/error.h"

namespace tessera {
namespace {

__extension__ using Wide = __int128;  // for products of a count and a weight

constexpr double kWeightSum = 0x1p40;  // the sum of the weights as whole numbers, up to rounding

}  // namespace

Mix::Mix(std::span<const double> weights, std::span<const int64_t> drawn) {
  TESSERA_CHECK(!weights.empty() && weights.size() == drawn.size(), "{} weights, {} counts",
                weights.size(), drawn.size());
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(total) || weight / total < kSmallestShare) {
      throw Error(
          "a weight of {} among weights of {} in all cannot be mixed; expected a number "
          "above 0 and at least {} of the sum",
          weight, total, kSmallestShare);
    }
    sources_.push_back({std::llround(weight / total * kWeightSum), 0});
    sum_ += sources_.back().weight;
  }
  Wide draws = 0;
  for (const int64_t count : drawn) draws += count;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Wide behind = draws * sources_[i].weight - Wide{drawn[i]} * sum_;
    if (drawn[i] < 0 || behind >= sum_ || behind <= -Wide{sum_}) {
      throw Error("a source was drawn {} times, which is not its share of a mix of these weights",
                  drawn[i]);
    }
    sources_[i].behind = static_cast<int64_t>(behind);
  }
}

size_t Mix::next() {
  // In units of one draw, with k sources: a source may be drawn once it is 1 / (2k - 2) behind its
  // share. It then has (1 - 1 / (2k - 2) - behind) / weight draws left until it must be drawn. The
  // one with the fewest draws left is drawn. Below, all of this is multiplied by (2k - 2) * sum_.
  const auto scale = static_cast<Wide>(2 * sources_.size()) - 2;
  size_t chosen = sources_.size();
  Wide fewest_draws = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    Source& source = sources_[i];
    source.behind += source.weight;
    // A single source (scale 0) is always drawn.
    if (scale * source.behind < sum_ && scale > 0) continue;
    const Wide draws = (scale - 1) * sum_ - scale * source.behind;
    const bool sooner =
        chosen == sources_.size() || draws * sources_[chosen].weight < fewest_draws * source.weight;
    if (sooner) {
      chosen = i;
      fewest_draws = draws;
    }
  }
  TESSERA_CHECK(chosen < sources_.size(), "no source of {} is behind its share", sources_.size());
  sources_[chosen].behind -= sum_;
  return chosen;
}

}  // namespace tessera
