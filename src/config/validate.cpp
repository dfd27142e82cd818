#include <algorithm>

#include "base/error.h"
#include "config/load_config.h"
#include "data/mix.h"
#include "data/sources/open_data.h"

namespace tessera {
namespace {

template <typename Number>
void require_at_most(const char* key, Number value, const char* limit_key, Number limit) {
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

void validate_data(const DataConfig& data) {
  if (data.sources.empty()) {
    if (!data.directory.empty()) return;
    throw Error("there is no data: set data.directory or give [[data.sources]]");
  }
  if (!data.directory.empty()) {
    throw Error(
        "data.directory (\"{}\") and [[data.sources]] are both given; leave one out (on the "
        "command "
        "line: --set 'data.sources=[]')",
        data.directory);
  }
  double sum = 0;
  const std::vector<SourceConfig> sources = named_sources(data);
  for (const SourceConfig& source : sources) sum += source.weight;
  for (const SourceConfig& source : sources) {
    if (source.weight / sum >= Mix::kSmallestShare) continue;
    throw Error(
        "the weight of the source {} is {} of {} in all; expected at least a share of {}: raise it "
        "or leave the source out",
        source.name, source.weight, sum, Mix::kSmallestShare);
  }
}

/// Rows of tokens, and of tokens times their experts, are numbered by 32-bit integers.
void validate_rows(const RunConfig& config) {
  const int64_t experts = std::max<int64_t>(1, config.model.experts_per_token);
  const double rows = static_cast<double>(config.train.micro_batch) *
                      static_cast<double>(config.data.context) * static_cast<double>(experts);
  if (rows < 0x1p31) return;
  throw Error(
      "train.micro_batch ({}) * data.context ({}) * model.experts_per_token ({}, at least 1) is "
      "{:.0f}; it must be less than {}: choose a smaller micro-batch or a shorter context",
      config.train.micro_batch, config.data.context, config.model.experts_per_token, rows,
      int64_t{1} << 31);
}

void validate_steps(const RunConfig& config) {
  const int64_t steps = config.train.steps;
  require_at_most("train.stop_after", config.train.stop_after, "train.steps", steps);
  require_at_most("optimizer.warmup_steps", config.optimizer.warmup_steps, "train.steps", steps);
  require_at_most("run.trace_step", config.run.trace_step, "train.steps", steps);
}

/// The context that a model declares is one that it was trained on.
void validate_context(const RunConfig& config) {
  if (config.model.max_context == 0) return;
  require_at_most("data.context", config.data.context, "model.max_context",
                  config.model.max_context);
}

void validate_rates(const OptimizerConfig& optimizer) {
  require_at_most("optimizer.minimum_learning_rate", optimizer.minimum_learning_rate,
                  "optimizer.learning_rate", optimizer.learning_rate);
}

void validate_checkpoints(const CheckpointSection& checkpoint) {
  if (checkpoint.keep_every == 0) return;
  if (checkpoint.every == 0) {
    throw Error(
        "checkpoint.keep_every is {}, but checkpoint.every is 0: checkpoints are written at the "
        "end only; set checkpoint.every, or keep_every to 0",
        checkpoint.keep_every);
  }
  if (checkpoint.keep_every % checkpoint.every != 0) {
    throw Error(
        "checkpoint.every ({}) does not divide checkpoint.keep_every ({}): no checkpoint is "
        "written at step {}; choose a multiple",
        checkpoint.every, checkpoint.keep_every, checkpoint.keep_every);
  }
}

}  // namespace

void validate(const RunConfig& config) {
  validate(config.model);
  validate_data(config.data);
  validate_context(config);
  validate_batches(config.train);
  validate_rows(config);
  validate_steps(config);
  validate_rates(config.optimizer);
  validate_checkpoints(config.checkpoint);
}

}  // namespace tessera
