#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "comm/wire_format.h"
#include "model/parameter.h"
#include "state/unit_shard.h"

namespace tessera {

/// The bytes that ranks get from each other to sum their gradients.
struct GradientBytes {
  double counted = 0;   ///< by the transports
  double expected = 0;  ///< from the sizes of the gradients and the configured wire format

  GradientBytes& operator+=(const GradientBytes& other);
  /// Returns whether both are the same but for the rounding of their sums.
  bool equal() const;
};

/// Returns what a rank has to get for one sum of all gradients, on the average over the ranks that
/// sum together. N ranks that sum E elements get 2 (N-1) E elements, in however many levels. If the
/// sum is cut over c of them (ZeRO-1), they get (N-1) E, and (N/c - 1) E where N/c ranks gather the
/// piece that each of them keeps.
double gradient_bytes_of_rank(const MeshRank& place, const ParameterList& parameters,
                              const StateShards& shards, WireFormat wire);

}  // namespace tessera
