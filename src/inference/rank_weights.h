#pragma once

#include "comm/mesh.h"
#include "engine/memory_plan.h"
#include "inference/loaded_model.h"
#include "model/parameter.h"

namespace tessera {

/// Returns the weights of a model for the program of one rank of a mesh, on the processor.
/// `rank_parameters` are the program's parameters. Units that the rank has whole share the model's
/// memory. The other units are copies of the rank's pieces.
GivenTensors rank_weights(const LoadedModel& model, const ParameterList& rank_parameters,
                          const MeshRank& mesh_rank);

/// Returns those units of the model that rank_weights() shares.
GivenTensors shared_weights(const LoadedModel& model, const ParameterList& rank_parameters);

}  // namespace tessera
