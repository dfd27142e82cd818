#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "config/run_config.h"
#include "pipeline/schedule.h"
#include "plan/programs.h"

namespace tessera {

// The numbers of layers that parallel.stage_layers = "balanced" asks for.

/// What a part of the model costs one rank for one micro-batch.
struct PartCost {
  double flops = 0;              ///< of its passes, repeated ones included
  int64_t state_bytes = 0;       ///< of weights and, in training, gradients, masters and moments
  int64_t activation_bytes = 0;  ///< kept from the forward to the backward pass
};

/// The costs of the parts of a model. Those of a chunk are their sum.
struct ModelCosts {
  PartCost embedding;
  std::vector<PartCost> layers;
  PartCost head;  ///< with the last norm and the loss
};

/// Returns the costs that the parts have on each pipeline stage, for a run or its first phase. A
/// stage that recomputes (train.recompute_stages) has more FLOPs and fewer activations. The costs
/// are read from the program of the whole model on the first rank of the mesh. What each chunk has
/// alike, such as tables of angles, is left out.
std::vector<ModelCosts> stage_costs(const RunConfig& config, const Mesh& mesh);

/// Returns the costs of an evaluation on the first rank of a mesh: the FLOPs of the forward pass
/// and the memory of the weights. Nothing is kept for a backward pass. Placement and ranges of
/// `passes` are not used.
ModelCosts evaluation_costs(PassesToWrite passes, const Mesh& mesh);

/// Returns the number of layers of each chunk. `costs` are those of the parts, by stage.
/// These rules decide in turn:
///
/// 1. The largest FLOPs of a stage for one micro-batch are as few as possible.
/// 2. The most memory of a stage is as little as possible: its states, and the activations of the
///    micro-batches in flight. `in_flight` is RankFigures::peak_in_flight, by stage.
/// 3. The largest FLOPs of a chunk are as few as possible.
///
/// Each chunk has at least one layer, but the first and the last may have none. The search begins
/// with numbers that differ by at most one, and moves one layer at a time from a chunk to another.
/// If the layers cost the same on a stage, it finds the best numbers by rules 1 and 2; otherwise it
/// may end where no single move helps. A pure function of its arguments.
std::vector<int64_t> balance_layers(std::span<const ModelCosts> costs,
                                    const ChunkPlacement& placement,
                                    std::span<const int> in_flight);

/// Returns a configuration with the numbers of layers in place of "balanced", the same ones on all
/// ranks. Other configurations are returned unchanged. All phases of a run have the numbers that
/// its first one asks for, because a parameter stays on its stage. The mesh is that of mesh_of().
RunConfig with_stage_layers(RunConfig config, const Mesh& mesh);

}  // namespace tessera
