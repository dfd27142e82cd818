#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "comm/wire_format.h"
#include "model/parameter.h"
#include "state/state_shard.h"

namespace tessera {

/// The bytes that ranks receive from each other to sum their gradients.
struct GradientBytes {
  double counted = 0;   ///< by the transports
  double expected = 0;  ///< from the sizes of the gradients and the configured wire format

  /// Returns whether both numbers are the same but for the rounding of their sums.
  bool equal() const;
};

/// Returns the bytes that a rank has to receive for the sum of all gradients in an update, on
/// average over the N ranks that sum together. For E elements they receive 2 (N-1) E elements
/// together, with any number of levels. If the sum is sharded over c of them (ZeRO-1), they receive
/// (N-1) E, and then (N/c-1) E more because N/c ranks gather the piece that each of them keeps.
/// A wire format rounds the sum and, of whole sums, what is gathered too. Where each frame has
/// reduced its gradients over g ranks already (ZeRO-2), E is that of a piece, and N and c are
/// divided by g.
double gradient_bytes_of_rank(const MeshRank& mesh_rank, const ParameterList& parameters,
                              const StateShard& shard, WireFormat wire);

}  // namespace tessera
