#pragma once

#include <cstdint>
#include <string>

#include "comm/wire_format.h"

namespace tessera {

/// The group of ranks over which a part of the training state is cut, as a key of [shard] gives it.
/// Each of these ranks has a piece. Every other such group has a copy.
struct ShardPlacement {
  /// "none": each rank has all of it. "all": all ranks that hold the same weights. Otherwise the
  /// name of a level of the network: those of them that are in one group of the level (MeshLevel).
  std::string level = "none";
  int64_t ranks = 0;  ///< the number of ranks in place of `level`; 0: not given

  bool operator==(const ShardPlacement&) const = default;
  bool is_none() const { return ranks == 0 && level == "none"; }
  /// Returns the value of the key: "4", or "\"node\"".
  std::string text() const { return ranks > 0 ? std::to_string(ranks) : '"' + level + '"'; }
};

/// The [shard] section of a run's configuration.
struct ShardConfig {
  ShardPlacement weights = {};
  ShardPlacement gradients = {};                 ///< the main gradients
  ShardPlacement optimizer = {};                 ///< masters and moments
  ShardPlacement secondary = {};                 ///< a second copy of sharded weights (hpZ)
  bool gather_again = true;                      ///< see CutUnitOptions::gathers_again
  WireFormat weights_wire = WireFormat::fp32;    ///< in which gathers of frames send weights
  WireFormat secondary_wire = WireFormat::fp32;  ///< that of the second copy
  WireFormat gradients_wire = WireFormat::fp32;  ///< in which gradients are sent
  bool gradients_by_level = true;                ///< see Wire::by_level
  bool expert_aware = true;                      ///< see ShardAxes::outside_experts
  int64_t block = 256;        ///< the elements of a block of integers that have one scale
  double error_feedback = 0;  ///< see CutUnitOptions::error_feedback
};

}  // namespace tessera
