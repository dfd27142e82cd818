#pragma once

#include "model/expert_layout.h"
#include "model/model_writer.h"
#include "ops/router/router.h"

namespace tessera {

/// The results of a layer's experts.
struct ExpertResults {
  Value output;  ///< [tokens, hidden]: the weighted sum of the chosen experts' outputs
  /// i32 [classes], invariant, in the dense view: the number of tokens of all ranks that chose each
  /// class of the router (the experts, then the skip class if there is one), before dropping.
  Value counts;
};

/// Writes the experts of a layer, with the exchange of their tokens that the layout names. x,
/// [tokens, hidden], and the output have the same distribution in the dense view. Throws Error if
/// the experts do not divide over the mesh's expert axis.
ExpertResults write_experts(ModelWriter& writer, const ExpertLayout& layout, Value x,
                            const RouterSelection& selection);

}  // namespace tessera
