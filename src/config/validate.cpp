// Checks that involve several keys. Each adds its contradictions to `found`, so that one error
// names all of them. Rules about a single key stand in sections/.

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "config/check_context.h"
#include "config/check_pipeline.h"
#include "config/load_config.h"
#include "config/phases.h"
#include "data/mix.h"
#include "data/sources/open_data.h"
#include "model/model_config.h"
#include "tensor/device_precision.h"

namespace tessera {
namespace {

template <typename Number>
void check_at_most(Contradictions& found, const char* key, Number value, const char* limit_key,
                   Number limit) {
  if (value > limit) {
    found.add("{} ({}) is larger than {} ({}); lower the one or raise the other", key, value,
              limit_key, limit);
  }
}

void validate_batches(const TrainSection& train, Contradictions& found) {
  if (train.global_batch % train.micro_batch != 0) {
    found.add(
        "train.micro_batch ({}) does not divide train.global_batch ({}): {} / {} leaves {}; choose "
        "a global batch that is a multiple of the micro-batch",
        train.micro_batch, train.global_batch, train.global_batch, train.micro_batch,
        train.global_batch % train.micro_batch);
  }
}

void validate_data(const DataConfig& data, Contradictions& found) {
  if (data.sources.empty()) {
    if (!data.directory.empty()) return;
    found.add("there is no data: set data.directory or give [[data.sources]]");
    return;
  }
  if (!data.directory.empty()) {
    found.add(
        "data.directory (\"{}\") and [[data.sources]] are both given; leave one out (on the "
        "command line: --set 'data.sources=[]')",
        data.directory);
  }
  std::vector<SourceConfig> sources;
  try {
    sources = named_sources(data);
  } catch (const Error& error) {
    found.add("{}", error.what());
  }
  double sum = 0;
  for (const SourceConfig& source : sources) sum += source.weight;
  for (const SourceConfig& source : sources) {
    if (source.weight / sum >= Mix::kSmallestShare) continue;
    found.add(
        "the weight of the source {} is {} of {} in all; expected at least a share of {}: raise it "
        "or leave the source out",
        source.name, source.weight, sum, Mix::kSmallestShare);
  }
}

void validate_steps(const RunConfig& config, Contradictions& found) {
  const int64_t steps = config.train.steps;
  check_at_most(found, "train.stop_after", config.train.stop_after, "train.steps", steps);
  if (!config.train.phases.empty()) return;  // each course has a length of its own
  check_at_most(found, "optimizer.warmup_steps", config.optimizer.warmup_steps, "train.steps",
                steps);
}

void validate_device(const RunConfig& config, Contradictions& found) {
  const auto problem =
      precision_problem(config.run.device, config.train.precision, "train.precision",
                        R"("bf16" or "fp32", or run.device "cpu")");
  if (problem) found.add("{}", *problem);
}

void validate_wire(const RunConfig& config, Contradictions& found) {
  const ShardConfig& shard = config.shard;
  const auto check = [&](const char* key, WireFormat format) {
    if (format == WireFormat::fp32 || config.train.precision != Precision::fp64) return;
    found.add(
        "shard.{0} is \"{1}\" and train.precision \"fp64\": numbers of fp64 travel as they are; "
        "set "
        "{0} to \"fp32\", or choose another precision",
        key, word(format));
  };
  check("weights_wire", shard.weights_wire);
  check("secondary_wire", shard.secondary_wire);
  check("gradients_wire", shard.gradients_wire);
  if (!shard.expert_aware && !shard.gradients.is_none()) {
    found.add(
        "shard.expert_aware is false and shard.gradients is {}: the plain sharded optimizer keeps "
        "whole weights and gradients; set shard.gradients and shard.weights to \"none\"",
        shard.gradients.text());
  }
  if (shard.block % 2 != 0) {
    found.add("shard.block ({}) is odd; choose an even number, so that two integers share a byte",
              shard.block);
  }
}

void validate_rates(const OptimizerConfig& optimizer, Contradictions& found) {
  if (optimizer.schedule == Schedule::constant) return;  // it has no minimum
  check_at_most(found, "optimizer.minimum_learning_rate", optimizer.minimum_learning_rate,
                "optimizer.learning_rate", optimizer.learning_rate);
}

/// Adds a contradiction if 64 bits cannot count the tokens of the run.
void validate_tokens(std::span<const RunPhase> phases, Contradictions& found) {
  constexpr double kMaxRunTokens = 0x1p62;
  double tokens = 0;
  for (const RunPhase& phase : phases) {
    tokens += static_cast<double>(phase.steps()) * static_cast<double>(phase.tokens_of_step());
  }
  if (tokens < kMaxRunTokens) return;
  found.add(
      "train.steps ({}) of train.global_batch sequences of data.context tokens are {:g} tokens; "
      "expected fewer than {:g}: lower one of the three",
      phases.back().last_step, tokens, kMaxRunTokens);
}

void validate_parallel(const ParallelSection& parallel, Contradictions& found) {
  const double bound = parallel.expert_rows_bound;
  if (bound > 0 && bound < 1) {
    found.add(
        "parallel.expert_rows_bound ({}): an even load would exceed it; choose 1 or more, or 0 "
        "for as many rows as can come",
        bound);
  }
  const std::vector<int64_t>& levels = parallel.levels;
  if (levels.size() > 1 && std::ranges::find(levels, 1) != levels.end()) {
    found.add("parallel.levels ({}): a group of one group is no level of its own; leave out the 1",
              levels);
  }
}

void validate_checkpoints(const CheckpointSection& checkpoint, Contradictions& found) {
  if (checkpoint.keep_every == 0) return;
  if (checkpoint.every == 0) {
    found.add(
        "checkpoint.keep_every is {}, but checkpoint.every is 0: checkpoints are written at the "
        "end only; set checkpoint.every, or keep_every to 0",
        checkpoint.keep_every);
  } else if (checkpoint.keep_every % checkpoint.every != 0) {
    found.add(
        "checkpoint.every ({}) does not divide checkpoint.keep_every ({}): no checkpoint is "
        "written at step {}; choose a multiple",
        checkpoint.every, checkpoint.keep_every, checkpoint.keep_every);
  }
}

}  // namespace

void validate(const RunConfig& config) {
  Contradictions found;
  find_contradictions(config.model, found);
  validate_data(config.data, found);
  validate_device(config, found);
  validate_wire(config, found);
  const std::vector<RunPhase> phases = phases_of(config);
  if (config.train.phases.empty()) {
    validate_batches(config.train, found);
    check_context(config, phases.front().context(), found);
    validate_rates(config.optimizer, found);
  } else {
    check_phases(config, phases, found);
  }
  validate_tokens(phases, found);
  validate_steps(config, found);
  validate_parallel(config.parallel, found);
  check_pipeline(config, found);
  validate_checkpoints(config.checkpoint, found);
  found.require_none();
}

void validate(const ParallelSection& parallel) {
  Contradictions found;
  validate_parallel(parallel, found);
  found.require_none();
}

}  // namespace tessera
