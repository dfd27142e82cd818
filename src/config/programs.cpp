#include "config/programs.h"

namespace tessera {

TrainingProgram forward_program(const RunConfig& config) {
  return write_forward(config.model, compute_dtype(config.train.precision),
                       config.train.micro_batch, config.data.context, config.data.document_mask);
}

TrainingProgram training_program(const RunConfig& config) {
  TrainingProgram training = forward_program(config);
  write_backward(training, recompute_from_names(config.train.recompute));
  return training;
}

}  // namespace tessera
