#pragma once

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/piece_layout.h"
#include "tensor/tensor.h"

namespace tessera {

/// Sums over the processes of a group, in the order of its ranks. MPI does not promise an order for
/// its own sums. So each rank sums one *part* of the result, its piece or slice, as reduce() does.
/// It receives the other ranks' addends of this part in rounds, which fit into the staging memory.
/// While it sums one round, the next one is under way.
class MpiSums {
 public:
  /// Refers to the group.
  explicit MpiSums(MpiGroup& group) : group_(group) {}

  /// Sums as Transport::reduce_scatter() does, with its operands.
  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to);
  /// Sums this rank's slice of an all-reduce (slice_begin()), and writes it to that slice of `to`.
  void reduce_slice(const Fingerprint& mark, const Tensor& from, const Tensor& to);

 private:
  template <typename ElementsOf, typename PartOf>
  void reduce_in_rounds(const Fingerprint& mark, const Tensor& to, ElementsOf&& elements_of,
                        PartOf&& part_of);

  MpiGroup& group_;
};

}  // namespace tessera
