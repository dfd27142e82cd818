#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/usable_memory.h"
#include "verify/layout_run.h"

namespace tessera {

/// The memory that a verification takes on a machine, for all ranks there.
struct VerifyMemory {
  int64_t one_rank = 0;       ///< the arena of one rank in fp64
  int64_t layout = 0;         ///< the arenas of all ranks of the layout
  int64_t results = 0;        ///< the gradients of each step and the weights, of one run in fp64
  int64_t streams = 0;        ///< the values of both runs, to find the first that differs
  int64_t states = 0;         ///< the part of `one_rank` that does not shrink with the batch
  int64_t layout_states = 0;  ///< the same part of `layout`

  /// Returns the memory of the phase that takes the most: the layout trains; one rank trains beside
  /// the layout's results; to find a difference, each trains again beside the values of both.
  VerifyMemory peak() const;
  /// Returns the sum of all parts at the peak.
  int64_t bytes() const;
};

/// Returns the memory that the verification of a layout takes. Runs nothing. Without `local_ranks`
/// the ranks are threads of one process. Otherwise they are processes, and `local_ranks` lists the
/// ranks on one machine, ascending: only the first rank has results, and no values are kept to find
/// the first that differs.
VerifyMemory verify_memory(const LayoutTrial& trial, int steps,
                           const std::optional<std::vector<int>>& local_ranks = {});

/// Throws Error, which says what to do, if the verification does not fit in a memory.
void require_verify_memory(const LayoutTrial& trial, int steps,
                           const UsableMemory& memory = usable_memory(),
                           const std::optional<std::vector<int>>& local_ranks = {});

}  // namespace tessera
