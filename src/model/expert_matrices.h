#pragma once

#include <vector>

#include "model/model_writer.h"

namespace tessera {

/// The matrices of a layer's experts, in the distribution that this rank's rows need.
struct ExpertMatrices {
  std::vector<Value> inward;  ///< gate and up, [experts, expert size, hidden]
  Value outward;              ///< down, [experts, hidden, expert size]
};

/// Declares the matrices, in a unit of their own, and returns them. If `split`, ranks have their
/// own tokens: the experts are split over the mesh's expert axis, and the matrices are invariant
/// over expert_data.
ExpertMatrices declare_experts(ModelWriter& writer, bool split);

/// Returns the experts' outputs for their rows, [rows, hidden]. Each expert's rows begin at its
/// offset.
Value apply_experts(ModelWriter& writer, const ExpertMatrices& matrices, Value rows, Value offsets);

}  // namespace tessera
