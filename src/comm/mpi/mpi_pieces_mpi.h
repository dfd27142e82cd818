#pragma once

#include <cstdint>
#include <span>

#include "comm/mpi/mpi_group_mpi.h"

namespace tessera {

/// Bytes that are sent to, or received from, another rank.
struct MpiPiece {
  int peer;  ///< the position of the other rank
  std::byte* memory;
  int64_t bytes;
};

/// Sends and receives pieces within a call about which the ranks of the group agree. `mark` is its
/// fingerprint.
void exchange_pieces(MpiGroup& group, const Fingerprint& mark, std::span<const MpiPiece> sends,
                     std::span<const MpiPiece> receives);

}  // namespace tessera
