#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/usable_memory.h"
#include "verify/layout_run.h"

namespace tessera {

/// The memory that a verification takes on a machine: that of all its ranks together.
struct VerifyMemory {
  int64_t one_rank = 0;  ///< the arena of one rank in fp64
  int64_t states = 0;    ///< the part of it that no smaller batch makes smaller
  int64_t layout = 0;    ///< those of all ranks of the layout
  int64_t results = 0;   ///< each step's gradients and the weights of a run in fp64
  int64_t streams = 0;   ///< of both runs' values, from which a difference is named

  /// At its peak: the results of the layout wait while one rank runs and gives its own, or while
  /// the values of both are kept.
  VerifyMemory peak() const;
  /// All of that together.
  int64_t bytes() const;
};

/// What the verification of a layout takes, of which nothing runs. The ranks are threads of one
/// process; or processes, and it is what those `here` take, of one machine. The first rank has the
/// results then, and no values of a micro-batch are kept.
VerifyMemory verify_memory(const LayoutTrial& trial, int steps,
                           const std::optional<std::vector<int>>& here = {});

/// Throws Error, with the numbers and what to do, if the verification does not fit in a memory.
void require_verify_memory(const LayoutTrial& trial, int steps,
                           const UsableMemory& memory = usable_memory(),
                           const std::optional<std::vector<int>>& here = {});

}  // namespace tessera
