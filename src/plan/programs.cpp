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

TrainingProgram evaluation_program(const RunConfig& config) {
  return write_evaluation(inference_config(config.model), compute_dtype(config.train.precision),
                          size_of(config));
}

TrainingProgram training_program(const RunConfig& config) {
  return write_training(config.model, compute_dtype(config.train.precision), size_of(config),
                        recompute_of(config.train.recompute));
}

}  // namespace tessera
