#pragma once

#include <cstdint>

#include "program/target.h"

namespace tessera {

/// Keys of one tile of attention: the most, as powers of two from 256 to 1024, whose scores and
/// probabilities leave room in a core's second-level cache, which is taken for 1 MiB where it is
/// not known. Sums are taken tile by tile, so that other sizes give other roundings.
struct AttentionTiles {
  explicit AttentionTiles(const Target& target);

  int64_t forward_keys;
  int64_t backward_keys;
};

}  // namespace tessera
