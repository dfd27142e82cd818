#include "ops/attention/tile_sizes.h"

#include <algorithm>
#include <bit>

#include "ops/attention/flash_backward.h"
#include "ops/attention/flash_forward.h"

namespace tessera {
namespace {

int64_t keys_within(int64_t cache_bytes, int64_t bytes_a_key) {
  const auto most = static_cast<uint64_t>(cache_bytes / bytes_a_key);
  return std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(most)), 256, 1024);
}

}  // namespace

AttentionTiles::AttentionTiles(const Target& target) {
  constexpr int64_t kUsual = int64_t{1} << 20;
  const int64_t known = target.caches.second_level;
  const int64_t bytes = known > 0 ? known : kUsual;
  // Scores are f32 and probabilities bf16. The backward pass also has the gradients of both.
  forward_keys = keys_within(bytes, kForwardQueries * (4 + 2));
  backward_keys = keys_within(bytes, kBackwardQueries * 2 * (4 + 2));
}

}  // namespace tessera
