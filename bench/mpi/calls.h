#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <mpi.h>

#include "comm/communicator.h"

namespace tessera {

/// One collective of one size, as several programs do it on the same operands.
struct ComparedCalls {
  std::function<void()> ours;
  /// MPI's own call.
  std::function<void()> plain;
  /// MPI's calls that take sums in the order of the ranks, as ours does. Empty if there are no
  /// sums.
  std::function<void()> alike;
  int64_t bytes = 0;  ///< of the whole, or of a message
};

/// The calls of a collective of `bytes` bytes of f32. Refers to the communicators, which have the
/// same ranks. A message goes from each rank to the next.
ComparedCalls compared_calls(Collective collective, int64_t bytes, Communicator& group,
                             MPI_Comm plain);

}  // namespace tessera
