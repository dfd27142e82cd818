#pragma once

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/piece_layout.h"
#include "tensor/tensor.h"

namespace tessera {

// Sums over the processes of a group, in the order of its ranks. MPI does not promise an order for
// its own sums. So each rank sums one *part* of the result, its piece or slice, as reduce() does.
// It receives the other ranks' addends of this part in rounds, which fit into the staging memory.
// While it sums one round, the next one is under way.

/// Sums wholes. Each rank gets its piece of the sum (Collective::reduce_scatter).
void reduce_scatter(MpiGroup& group, const Fingerprint& mark, const PieceLayout& layout,
                    const Tensor& from, const Tensor& to);
/// Sums this rank's slice of an all-reduce (slice_begin()), and writes it to that slice of `to`.
void reduce_slice(MpiGroup& group, const Fingerprint& mark, const Tensor& from, const Tensor& to);

}  // namespace tessera
