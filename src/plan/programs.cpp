#include "plan/programs.h"

#include <utility>

#include "config/mesh_of.h"

namespace tessera {
namespace {

ProgramSize size_of(const RunConfig& config, const Mesh& mesh) {
  return {.sequences = config.train.micro_batch * data_ranks(mesh),
          .context = config.data.context,
          .document_mask = config.data.document_mask};
}

}  // namespace

ModelConfig inference_config(ModelConfig config) {
  config.capacity_factor = 0;
  config.forced_uniform_routing = false;
  return config;
}

std::vector<const Program*> StepPrograms::list() const {
  std::vector<const Program*> result;
  for (const Chunk& chunk : chunks) result.push_back(&chunk.program);
  result.push_back(&start);
  result.push_back(&update.program);
  result.push_back(&rounding);
  if (evaluation) result.push_back(&evaluation->program);
  return result;
}

std::vector<Action> StepPrograms::actions() const {
  std::vector<Action> result{{.segment = Segment::whole, .program = start_number()},
                             {.segment = Segment::forward},
                             {.segment = Segment::backward},
                             {.segment = Segment::whole, .program = update_number()},
                             {.segment = Segment::whole, .program = rounding_number()}};
  if (evaluation) result.push_back({.segment = Segment::whole, .program = evaluation_number()});
  return result;
}

StepPrograms step_programs(Chunk whole_model, const OptimizerConfig& optimizer,
                           WireFormat gradients_wire) {
  StepPrograms programs;
  programs.chunks.push_back(std::move(whole_model));
  const Chunk& chunk = programs.chunks.front();
  const MeshRank place{chunk.program.mesh(), chunk.program.rank()};
  const std::vector<ParameterUnit>& units = chunk.parameters.units();
  programs.start = write_step_start(units, chunk.sums(), place);
  programs.update =
      write_update(units, chunk.parameters.specs(), chunk.sums(), optimizer, place, gradients_wire,
                   {.units = chunk.balance_units, .rate = chunk.balance_rate});
  programs.rounding = write_rounding(units, place);
  return programs;
}

StepPrograms step_programs(const RunConfig& config, const MeshRank& place) {
  const DType compute = compute_dtype(config.train.precision);
  const ProgramSize size = size_of(config, place.mesh);
  const ExpertLayout experts = expert_layout(config.parallel);
  StepPrograms programs =
      step_programs(write_training(config.model, compute, size,
                                   recompute_of(config.train.recompute), place, experts),
                    config.optimizer, config.shard.gradients_wire);
  if (config.train.evaluate_every > 0) {
    // It drops no token, so more rows may come than in training.
    ExpertLayout unbounded = experts;
    unbounded.rows_bound = 0;
    programs.evaluation =
        write_evaluation(inference_config(config.model), compute, size, place, unbounded);
  }
  return programs;
}

}  // namespace tessera
