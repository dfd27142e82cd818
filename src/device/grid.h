#pragma once

#include <cstdint>

namespace tessera {

/// The size of a kernel's launch: blocks of threads, both in up to two dims.
struct Grid {
  int64_t blocks = 1;
  int threads = 1;  ///< of a block, in its first dim
  int64_t blocks_y = 1;
  int threads_y = 1;
  int shared_bytes = 0;  ///< of dynamic shared memory that a block has
};

/// Throws InternalError if no device has as many blocks, or threads in a block: 2^31 - 1 by 65,535
/// blocks, and 1,024 threads.
void check_grid(const Grid& grid);

}  // namespace tessera
