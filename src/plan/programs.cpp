#include "plan/programs.h"

#include <utility>

namespace tessera {
namespace {

ProgramSize size_of(const RunConfig& config) {
  return {.sequences = config.train.micro_batch,
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

StepPrograms step_programs(Chunk whole_model, const OptimizerConfig& optimizer) {
  StepPrograms programs;
  programs.chunks.push_back(std::move(whole_model));
  const Chunk& chunk = programs.chunks.front();
  programs.start = write_step_start(chunk.parameters.units(), chunk.sums());
  programs.update = write_update(chunk.parameters.units(), chunk.parameters.specs(),
                                 chunk.loss_sums(), optimizer);
  programs.rounding = write_rounding(chunk.parameters.units());
  return programs;
}

StepPrograms step_programs(const RunConfig& config) {
  const DType compute = compute_dtype(config.train.precision);
  StepPrograms programs = step_programs(
      write_training(config.model, compute, size_of(config), recompute_of(config.train.recompute)),
      config.optimizer);
  if (config.train.evaluate_every > 0) {
    programs.evaluation =
        write_evaluation(inference_config(config.model), compute, size_of(config));
  }
  return programs;
}

}  // namespace tessera
