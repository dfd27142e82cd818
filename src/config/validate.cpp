#include "base/error.h"
#include "config/load_config.h"

namespace tessera {
namespace {

void require_at_most(const char* key, int64_t value, const char* limit_key, int64_t limit) {
  if (value > limit) {
    throw Error("{} ({}) is larger than {} ({}); lower the one or raise the other", key, value,
                limit_key, limit);
  }
}

void validate_batches(const TrainSection& train) {
  if (train.global_batch % train.micro_batch != 0) {
    throw Error(
        "train.micro_batch ({}) does not divide train.global_batch ({}): {} / {} leaves {}; choose "
        "a global batch that is a multiple of the micro-batch",
        train.micro_batch, train.global_batch, train.global_batch, train.micro_batch,
        train.global_batch % train.micro_batch);
  }
}

void validate_steps(const RunConfig& config) {
  const int64_t steps = config.train.steps;
  require_at_most("train.stop_after", config.train.stop_after, "train.steps", steps);
  require_at_most("optimizer.warmup_steps", config.optimizer.warmup_steps, "train.steps", steps);
  require_at_most("run.trace_step", config.run.trace_step, "train.steps", steps);
}

void validate_rates(const OptimizerConfig& optimizer) {
  if (optimizer.minimum_learning_rate > optimizer.learning_rate) {
    throw Error(
        "optimizer.minimum_learning_rate ({}) is larger than optimizer.learning_rate ({}); lower "
        "the one or raise the other",
        optimizer.minimum_learning_rate, optimizer.learning_rate);
  }
}

void validate_checkpoints(const CheckpointSection& checkpoint) {
  if (checkpoint.keep_every == 0) return;
  if (checkpoint.every == 0) {
    throw Error(
        "checkpoint.keep_every is {}, but checkpoint.every is 0: checkpoints are written at the "
        "end "
        "only; set checkpoint.every, or keep_every to 0",
        checkpoint.keep_every);
  }
  if (checkpoint.keep_every % checkpoint.every != 0) {
    throw Error(
        "checkpoint.every ({}) does not divide checkpoint.keep_every ({}): no checkpoint is "
        "written "
        "at step {}; choose a multiple",
        checkpoint.every, checkpoint.keep_every, checkpoint.keep_every);
  }
}

}  // namespace

void validate(const RunConfig& config) {
  validate(config.model);
  validate_batches(config.train);
  validate_steps(config);
  validate_rates(config.optimizer);
  validate_checkpoints(config.checkpoint);
}

}  // namespace tessera
