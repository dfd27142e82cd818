#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/piece_layout.h"
#include "comm/transport.h"
#include "tensor/tensor.h"

namespace tessera {

// How the calls of a group move by MPI (mpi_transport()).

/// Bytes within the memory of a call.
struct ByteBlock {
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// Gives every rank the blocks of all ranks but its own, by position, in `memory`. This rank's
/// block is at `own`. It is sent from there: MPI reads it from memory of this process, which is
/// slow if this process has just written it.
///
/// Small blocks go from each rank to each other, or in larger groups in log2(ranks) rounds: a rank
/// sends all that it has to the rank that is 1, 2, 4, ... positions before it (Bruck, 1997). Large
/// blocks go around a ring, so that few of them cross from one machine to another.
void gather_blocks(MpiGroup& group, const Fingerprint& mark, std::byte* own, std::byte* memory,
                   std::span<const ByteBlock> blocks);

/// Gives every rank the bytes of the rank at position `root`. Few bytes go along a binomial tree.
/// Many go from rank to rank in segments: a rank sends one on while the next one comes.
void broadcast_bytes(MpiGroup& group, const Fingerprint& mark, std::byte* memory, int64_t bytes,
                     int root);

/// Waits until all ranks have come.
void meet_all(MpiGroup& group, const Fingerprint& mark);

// Sums over the processes of a group, in the order of its ranks. MPI does not promise an order for
// its own sums. So each rank sums one *part* of the result, its piece or slice, as reduce() does.
// It receives the other ranks' addends of this part in rounds, which fit into the staging memory.
// While it sums one round, the next one is under way.

/// Sums wholes. Each rank gets its piece of the sum (Collective::reduce_scatter).
void reduce_scatter(MpiGroup& group, const Fingerprint& mark, const PieceLayout& layout,
                    const Tensor& from, const Tensor& to);
/// Sums this rank's slice of an all-reduce (slice_begin()), and writes it to that slice of `to`.
void reduce_slice(MpiGroup& group, const Fingerprint& mark, const Tensor& from, const Tensor& to);

/// Posts a message of this rank in a group: MPI begins to move it, and matches messages in the
/// order of their posts. Its bytes move while MPI is called, by whatever thread (MpiProgress).
///
/// The destructor withdraws a message that has not moved. MPI cannot take back what it sends, so
/// the memory of such a message is kept. The group makes no more calls then.
std::unique_ptr<TransportPost> post_by_mpi(MpiGroup& group, const MarkedMessage& message,
                                           bool sent);

/// Waits until messages that post_by_mpi() has returned have moved.
void wait_for_posts(MpiGroup& group, std::span<TransportPost* const> posts);

}  // namespace tessera
