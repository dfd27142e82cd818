#pragma once

#include <algorithm>
#include <cstdint>

#include "program/target.h"

namespace tessera {

/// Partial sums over tokens, which add up to the gradients of up to three weights. Each part holds
/// the sums over some of the tokens: the elements of the gradients, one weight after another. The
/// parts are added in their order.
struct WeightParts {
  static constexpr int kWeights = 3;
  int64_t count;       // parts
  int64_t width;       // elements of a part
  const float* parts;  // [count, width]
  float* to[kWeights];
  int64_t sizes[kWeights];  // elements; 0 for none

  /// Returns the address of the total of a column. The weights are compared one by one: a device
  /// would copy an array that is indexed by a variable into the local memory of each thread.
  constexpr float* total_address(int64_t column) const {
    float* totals = to[0];
    int64_t first = 0, begin = 0;
    for (int weight = 1; weight < kWeights; ++weight) {
      begin += sizes[weight - 1];
      if (column < begin) continue;
      totals = to[weight];
      first = begin;
    }
    return totals + (column - first);
  }
};

/// Returns the number of parts in which sums over `tokens` are taken. On the processor it depends
/// on nothing else, so the result does not depend on the threads. On a device it also gives each
/// multiprocessor enough blocks.
inline int64_t token_parts(const Target& target, int64_t tokens) {
  const bool device = target.device != Device::cpu;
  const int64_t least_tokens = device ? 16 : 64;
  const int64_t most = device ? int64_t{8} * multiprocessors_of(target) : 256;
  return std::clamp<int64_t>((tokens + least_tokens - 1) / least_tokens, 1, most);
}

/// Adds up the parts on the processor.
void add_weight_parts(const WeightParts& sums, int threads);

}  // namespace tessera
