#pragma once

#include <algorithm>
#include <cstdint>

#include "program/target.h"

namespace tessera {

/// Partial sums over tokens of the gradients of up to three weights, such as a norm's. A part holds
/// the sums over some tokens, one weight after another. Parts are added in a fixed order.
struct WeightParts {
  static constexpr int kWeights = 3;
  int64_t count;               // parts
  int64_t width;               // elements of a part
  const float* parts;          // [count, width]
  float* gradients[kWeights];  // [sizes[i]] each
  int64_t sizes[kWeights];     // elements; 0 for none

  /// Returns the address of the total of a column. The unrolled loop has constant indices: for a
  /// variable index, a device would copy the array into each thread's local memory.
  constexpr float* total_address(int64_t column) const {
    float* totals = gradients[0];
    int64_t totals_begin = 0, weight_begin = 0;  // columns
    for (int weight = 1; weight < kWeights; ++weight) {
      weight_begin += sizes[weight - 1];
      if (column < weight_begin) continue;
      totals = gradients[weight];
      totals_begin = weight_begin;
    }
    return totals + (column - totals_begin);
  }
};

/// Returns the number of parts into which `tokens` are divided. On the processor it depends on the
/// tokens alone, so the sums do not depend on the threads. On a device it also depends on the
/// multiprocessors, each of which gets up to eight blocks.
inline int64_t token_parts(const Target& target, int64_t tokens) {
  const bool on_device = target.device != Device::cpu;
  const int64_t min_tokens = on_device ? 16 : 64;  // of a part
  const int64_t max_parts = on_device ? int64_t{8} * multiprocessors_of(target) : 256;
  return std::clamp<int64_t>((tokens + min_tokens - 1) / min_tokens, 1, max_parts);
}

/// Writes the sums of the parts to the gradients, on the processor.
void add_weight_parts(const WeightParts& sums, int threads);

}  // namespace tessera
