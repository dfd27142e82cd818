#pragma once

#include "device/packs.h"

namespace tessera {
namespace {

/// Returns a pack of channels after their rotation. They are the first (`is_first`) or the second
/// channels of pairs, and `partner` has the other channel of each pair. Both packs are those before
/// the rotation. A negated sine gives the inverse rotation.
template <typename T, int pack_size>
__device__ Pack<T, pack_size> rotated_pack(bool is_first, const Pack<T, pack_size>& pack,
                                           const Pack<T, pack_size>& partner,
                                           const Pack<float, pack_size>& cosine,
                                           const Pack<float, pack_size>& sine) {
  Pack<T, pack_size> result;
  for (int i = 0; i < pack_size; ++i) {
    const auto value = static_cast<float>(pack.values[i]);
    const float across = static_cast<float>(partner.values[i]) * sine.values[i];
    result.values[i] = round_to<T>(is_first ? value * cosine.values[i] - across
                                            : value * cosine.values[i] + across);
  }
  return result;
}

}  // namespace
}  // namespace tessera
