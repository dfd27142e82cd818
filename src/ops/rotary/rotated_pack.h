#pragma once

#include "device/packs.h"

namespace tessera {
namespace {

/// Returns a pack of the first or of the second channels of pairs, after their rotation. `other`
/// has the other channel of each pair, before the rotation. A negated sine gives the inverse
/// rotation.
template <typename T, int size>
__device__ Pack<T, size> rotated_pack(bool is_first, const Pack<T, size>& own,
                                      const Pack<T, size>& other, const Pack<float, size>& cosine,
                                      const Pack<float, size>& sine) {
  Pack<T, size> result;
  for (int i = 0; i < size; ++i) {
    const auto value = static_cast<float>(own.values[i]);
    const float across = static_cast<float>(other.values[i]) * sine.values[i];
    result.values[i] = round_to<T>(is_first ? value * cosine.values[i] - across
                                            : value * cosine.values[i] + across);
  }
  return result;
}

}  // namespace
}  // namespace tessera
