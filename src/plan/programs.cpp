#include "plan/programs.h"

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
  if (evaluation) result.push_back(&evaluation->program);
  return result;
}

std::vector<Action> StepPrograms::actions(int64_t micro_batches) const {
  std::vector<Action> result{{.segment = Segment::whole, .program = start_number()}};
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    result.push_back({Segment::forward, 0, micro_batch});
    result.push_back({Segment::backward, 0, micro_batch});
  }
  result.push_back({.segment = Segment::whole, .program = update_number()});
  if (evaluation) result.push_back({.segment = Segment::whole, .program = evaluation_number()});
  return result;
}

StepPrograms step_programs(const RunConfig& config) {
  const DType compute = compute_dtype(config.train.precision);
  StepPrograms programs;
  programs.chunks.push_back(
      write_training(config.model, compute, size_of(config), recompute_of(config.train.recompute)));
  const Chunk& chunk = programs.chunks.front();
  programs.start = write_step_start(chunk.parameters.units(), chunk.sums());
  programs.update = write_update(chunk.parameters.units(), chunk.parameters.specs(),
                                 chunk.loss_sums(), config.optimizer);
  if (config.train.evaluate_every > 0) {
    programs.evaluation =
        write_evaluation(inference_config(config.model), compute, size_of(config));
  }
  return programs;
}

}  // namespace tessera
