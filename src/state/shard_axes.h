#pragma once

#include "comm/mesh.h"

namespace tessera {

/// The axes over which the parts of the training state are cut. Ranks that hold the same weights
/// differ in their coordinates on the context axis and on the levels of the data axis. These axes
/// are counted in this order, from the innermost on, so each number stands for a nested group of
/// ranks. Experts are cut over the levels of expert_data within the same group.
struct ShardAxes {
  int weights = 0;    ///< 0: each rank has whole weights
  int gradients = 0;  ///< 0: each rank adds up whole main gradients
  int optimizer = 0;  ///< of masters and moments; 0: each rank has all of them
  int secondary = 0;  ///< of a second copy of the weights (hpZ of ZeRO++); 0: there is none
  bool operator==(const ShardAxes&) const = default;
};

}  // namespace tessera
