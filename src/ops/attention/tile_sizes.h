#pragma once

#include <cstdint>

#include "program/target.h"

namespace tessera {

/// The number of keys in one tile of attention: the largest power of two, from 256 to 1024, with
/// which scores and probabilities fit into a core's second-level cache. If the cache is unknown, 1
/// MiB is assumed. Sums are taken tile by tile, so other sizes round differently.
struct AttentionTiles {
  explicit AttentionTiles(const Target& target);

  int64_t forward_keys;
  int64_t backward_keys;
};

}  // namespace tessera
