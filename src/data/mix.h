#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// Shares out draws over sources by their weights, so that after every draw, of the n so far, each
/// source has had its share n * weight / sum of the weights to within less than one draw. Which
/// source a draw comes from depends on the weights and the counts alone, in whole numbers: it is
/// the same on every machine. (The rule is Tijdeman's for the chairman assignment problem, Discrete
/// Mathematics 32, 1980: of the sources that are far enough behind their share, the one that would
/// first be a whole draw behind.)
class Mix {
 public:
  /// A source's weight over the sum of all is at least this.
  static constexpr double kSmallestShare = 1e-9;

  /// `drawn` are the counts so far, of a mix of these weights. Throws Error when a weight is not
  /// above 0, or its share below the smallest, and when counts are not those of such
  /// a mix.
  Mix(std::span<const double> weights, std::span<const int64_t> drawn);

  /// The source of the next draw, in [0, weights.size()).
  size_t next();

 private:
  struct Source {
    int64_t weight;  // of kWeightSum
    int64_t behind;  // draws that its share is ahead of its count, times the sum of the weights
  };
  std::vector<Source> sources_;
  int64_t sum_ = 0;
};

}  // namespace tessera
