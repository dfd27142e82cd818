#pragma once

#include <algorithm>
#include <cstdint>

#include "program/target.h"

namespace tessera {

/// Partial sums over rows (tokens), which add up to the gradients of up to three weights. Each part
/// holds the sums over some of the rows: the elements of the gradients, one weight after another.
/// The parts are added in a fixed order.
struct WeightParts {
  static constexpr int kWeights = 3;
  int64_t count;               // parts
  int64_t width;               // elements of a part
  const float* parts;          // [count, width]
  float* gradients[kWeights];  // [sizes[i]] each
  int64_t sizes[kWeights];     // elements; 0 for none

  /// Returns the address of the total of a column. The weights are compared one by one: a device
  /// would copy an array that is indexed by a variable into the local memory of each thread.
  constexpr float* total_address(int64_t column) const {
    float* totals = gradients[0];
    int64_t first = 0, begin = 0;
    for (int weight = 1; weight < kWeights; ++weight) {
      begin += sizes[weight - 1];
      if (column < begin) continue;
      totals = gradients[weight];
      first = begin;
    }
    return totals + (column - first);
  }
};

/// Returns the number of parts in which sums over `tokens` are taken. On the processor it depends
/// on the tokens alone, so the result does not depend on the threads. On a device it also depends
/// on the multiprocessors, each of which gets up to eight blocks.
inline int64_t token_parts(const Target& target, int64_t tokens) {
  const bool device = target.device != Device::cpu;
  const int64_t least_tokens = device ? 16 : 64;
  const int64_t most_parts = device ? int64_t{8} * multiprocessors_of(target) : 256;
  return std::clamp<int64_t>((tokens + least_tokens - 1) / least_tokens, 1, most_parts);
}

/// Adds up the parts on the processor.
void add_weight_parts(const WeightParts& sums, int threads);

}  // namespace tessera
