#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/mpi/mpi_group_mpi.h"

namespace tessera {

/// Bytes within the memory of a call.
struct ByteBlock {
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// Gives every rank the blocks of all ranks, by position. This rank's block is in `memory` before.
///
/// Small blocks go from each rank to each other, or in larger groups in log2(ranks) rounds: a rank
/// sends all that it has to the rank that is 1, 2, 4, ... positions before it (Bruck, 1997). Large
/// blocks go around a ring, so that few of them cross from one machine to another.
void gather_blocks(MpiGroup& group, const Fingerprint& mark, std::byte* memory,
                   std::span<const ByteBlock> blocks);

/// Gives every rank the bytes of the rank at position `root`. Few bytes go along a binomial tree.
/// Many go from rank to rank in segments: a rank sends one on while the next one comes.
void broadcast_bytes(MpiGroup& group, const Fingerprint& mark, std::byte* memory, int64_t bytes,
                     int root);

/// Waits until all ranks have come.
void meet_all(MpiGroup& group, const Fingerprint& mark);

}  // namespace tessera
