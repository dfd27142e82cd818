#include "plan/evaluation_passes.h"

#include <utility>

#include "plan/batch_inputs.h"

namespace tessera {

std::vector<const Program*> EvaluationPasses::programs() const {
  std::vector<const Program*> result;
  for (const EvaluationProgram& chunk : chunks) result.push_back(&chunk.program);
  return result;
}

StageList EvaluationPasses::list(int first_program) const {
  std::vector<ChunkProgram> of_chunks;
  for (const EvaluationProgram& chunk : chunks) {
    of_chunks.push_back({.program = first_program + static_cast<int>(of_chunks.size()),
                         .activations_in = chunk.boundary_in.values(),
                         .activations_out = chunk.boundary_out.values(),
                         .gradients_in = {},
                         .gradients_out = {}});
  }
  const auto [mesh, rank] = mesh_rank();
  return stage_list(forward_schedule(placement), mesh.stage(rank), of_chunks);
}

EvaluationPasses evaluation_passes(EvaluationProgram whole_model) {
  EvaluationPasses passes;
  passes.vocabulary_size = vocabulary_size_of(whole_model.parameters);
  passes.chunks.push_back(std::move(whole_model));
  return passes;
}

}  // namespace tessera
