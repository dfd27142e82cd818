#include "device/grid.h"

#include <limits>

#include "base/error.h"

namespace tessera {

void check_grid(const Grid& grid) {
  constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMostBlocksY = 65535;
  constexpr int64_t kMostThreads = 1024;
  const int64_t threads = int64_t{grid.threads} * grid.threads_y;
  TESSERA_CHECK(grid.blocks >= 0 && grid.blocks <= kMostBlocks && grid.blocks_y >= 0 &&
                    grid.blocks_y <= kMostBlocksY,
                "a kernel of {} x {} blocks; devices have up to {} x {}", grid.blocks,
                grid.blocks_y, kMostBlocks, kMostBlocksY);
  TESSERA_CHECK(grid.threads > 0 && grid.threads_y > 0 && threads <= kMostThreads,
                "blocks of {} x {} threads; devices have up to {}", grid.threads, grid.threads_y,
                kMostThreads);
}

}  // namespace tessera
