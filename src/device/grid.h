#pragma once

#include <cstdint>

namespace tessera {

/// The size of a kernel's launch. The grid of blocks and each block of threads have up to two dims.
struct Grid {
  int64_t blocks = 1;  ///< the extent of the grid's first dim
  int threads = 1;     ///< the extent of a block's first dim
  int64_t blocks_y = 1;
  int threads_y = 1;
  int shared_bytes = 0;  ///< the dynamic shared memory of a block
};

/// Throws InternalError if a grid is larger than devices allow (2^31 - 1 by 65,535 blocks of 1,024
/// threads) or a block has no threads. A grid without blocks is allowed.
void check_grid(const Grid& grid);

}  // namespace tessera
