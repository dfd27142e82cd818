#pragma once

#include <algorithm>
#include <cstdint>

#include "program/target.h"

namespace tessera {

/// The sums over tokens that are the gradients of up to three weights. Each part is the sums over
/// some of the tokens: the gradients' elements, one weight after another. The parts are added in
/// their order.
struct WeightParts {
  static constexpr int kWeights = 3;
  int64_t count;       // parts
  int64_t width;       // elements of a part
  const float* parts;  // [count, width]
  float* to[kWeights];
  int64_t sizes[kWeights];  // elements; 0 for none

  /// The place of an element's sum. Places are compared one by one: a device would copy what is
  /// indexed by a variable into memory of each thread.
  constexpr float* place(int64_t column) const {
    float* of_weight = to[0];
    int64_t first = 0, begin = 0;
    for (int weight = 1; weight < kWeights; ++weight) {
      begin += sizes[weight - 1];
      if (column < begin) continue;
      of_weight = to[weight];
      first = begin;
    }
    return of_weight + (column - first);
  }
};

/// Returns the number of parts in which sums over `tokens` are taken. On the processor it depends
/// on nothing else, so the result does not depend on the threads. On a device it is such that each
/// multiprocessor has blocks enough.
inline int64_t token_parts(const Target& target, int64_t tokens) {
  const bool device = target.device != Device::cpu;
  const int64_t least_tokens = device ? 16 : 64;
  const int64_t most = device ? int64_t{8} * multiprocessors_of(target) : 256;
  return std::clamp<int64_t>((tokens + least_tokens - 1) / least_tokens, 1, most);
}

/// Adds the parts on the processor.
void add_weight_parts(const WeightParts& sums, int threads);

}  // namespace tessera
