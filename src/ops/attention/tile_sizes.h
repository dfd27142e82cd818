#pragma once

#include <cstdint>

namespace tessera {

/// Keys of one tile of attention, a context's choice (Context::cache). Sums are taken tile by tile,
/// so that other sizes give other roundings.
struct AttentionTiles {
  /// For this processor.
  AttentionTiles();
  /// The most, as powers of two from 256 to 1024, whose scores and probabilities leave room in a
  /// core's second-level cache of so many bytes; 0 for one that is not known, taken for 1 MiB.
  explicit AttentionTiles(int64_t cache_bytes);

  int64_t forward_keys;
  int64_t backward_keys;
};

}  // namespace tessera
