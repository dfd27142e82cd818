#pragma once

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/mpi/staging.h"
#include "comm/piece_layout.h"
#include "tensor/tensor.h"

namespace tessera {

/// Sums over the processes of a group, in the order of its ranks. MPI's own sums have no order that
/// it promises. So each rank gets all addends of its part, in rounds that fit into the staging
/// memory, and sums them. While it sums those of one round, the next one is under way.
class MpiSums {
 public:
  /// Refers to the group.
  explicit MpiSums(MpiGroup& group) : group_(group) {}

  /// The operands are those of Transport::reduce_scatter(), after MpiGroup::meet().
  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to);
  /// Sums this rank's slice of an all-reduce, which slice_begin() gives, to its place in `to`.
  void reduce_slice(const Fingerprint& mark, const Tensor& from, const Tensor& to);

 private:
  template <typename ElementsOf, typename PartOf>
  void reduce_in_rounds(const Fingerprint& mark, const Tensor& to, ElementsOf&& elements_of,
                        PartOf&& part_of);

  MpiGroup& group_;
  StagingMemory packed_;
  StagingMemory arrived_;
};

}  // namespace tessera
