#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"
#include "program/target.h"
#include "tensor/memory_layout.h"

namespace tessera {

/// What running a program will take from the pool, known without running it.
struct MemoryPlan {
  int64_t peak_bytes = 0;          ///< the most in use at once, with what was in use before
  int64_t saved_bytes = 0;         ///< what the forward pass leaves in use for the backward pass
  int peak_node = -1;              ///< the node during which the peak falls
  std::vector<int64_t> in_use_at;  ///< by node: bytes in use while it runs
  MemoryLayout left;               ///< the layout after the run, the outputs still in use
};

/// Replays the executor's allocations on `start`, the pool's layout before the run. Exact: the
/// pool's measured peak is the same number.
MemoryPlan plan_memory(const Program& program, const Target& target, MemoryLayout start = {});

}  // namespace tessera
