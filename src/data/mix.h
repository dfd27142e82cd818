#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// A mix of sources, which distributes draws over them by their weights. After any n draws, each
/// source's count is within less than one draw of its share, n * weight / sum of the weights. The
/// source of a draw depends only on the weights and the counts. The computation uses whole numbers,
/// so it is the same on every machine. (The rule is Tijdeman's for the chairman assignment problem,
/// Discrete Mathematics 32, 1980: among the sources that are far enough behind their share, the one
/// that would first be a whole draw behind is drawn.)
class Mix {
 public:
  /// The smallest allowed ratio of a source's weight to the sum of all.
  static constexpr double kSmallestShare = 1e-9;

  /// `drawn` holds each source's count so far in a mix of these weights. Throws Error when a weight
  /// is not above 0 or its share is below kSmallestShare, and when the counts cannot come from such
  /// a mix.
  Mix(std::span<const double> weights, std::span<const int64_t> drawn);

  /// Returns the source of the next draw, in [0, weights.size()).
  size_t next();

 private:
  struct Source {
    int64_t weight;  // a whole number; all weights add up to about 2^40
    int64_t behind;  // (the source's share - its count), in draws, times sum_
  };
  std::vector<Source> sources_;
  int64_t sum_ = 0;  // of the weights
};

}  // namespace tessera
