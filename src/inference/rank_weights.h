#pragma once

#include "comm/mesh.h"
#include "engine/memory_plan.h"
#include "inference/loaded_model.h"
#include "model/parameter.h"

namespace tessera {

/// The weights of a model as the program of one rank of a mesh takes them, on the processor.
/// `of_rank` are the program's parameters. Units of which the rank has all share the model's
/// memory; of the others it gets its pieces, in memory of their own.
GivenTensors rank_weights(const LoadedModel& model, const ParameterList& of_rank,
                          const MeshRank& place);

/// Returns those units of the model that rank_weights() shares.
GivenTensors shared_weights(const LoadedModel& model, const ParameterList& of_rank);

}  // namespace tessera
