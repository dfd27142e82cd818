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

}  // namespace tessera
