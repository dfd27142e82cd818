#include "train/training_state.h"

#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/prune.h"
#include "checkpoint/save.h"
#include "config/load_config.h"

namespace tessera {
namespace {

std::vector<NamedTensor> named_tensors(const ParameterStore& store) {
  std::vector<NamedTensor> tensors;
  for (const ParameterState& state : store.parameters()) {
    tensors.push_back({"parameters", state.spec.name, state.master});
  }
  for (const ParameterState& state : store.parameters()) {
    tensors.push_back({"optimizer", state.spec.name + ".first_moment", state.first_moment});
    tensors.push_back({"optimizer", state.spec.name + ".second_moment", state.second_moment});
  }
  return tensors;
}

/// What tells one prepared training split from another.
std::string data_fingerprint(const Manifest& data) {
  std::string text = data.tokenizer_fingerprint;
  for (const Shard& shard : data.train.shards) text += shard.hash;
  return hash_text(hash(text));
}

}  // namespace

fs::path checkpoints_directory(const RunConfig& config) {
  return fs::path(config.run.directory) / "checkpoints";
}

void save_training(const RunConfig& config, const ParameterStore& store,
                   const TrainingPosition& position, const Manifest& data) {
  CheckpointState state;
  state.step = position.step;
  state.config = to_toml(config);
  state.values = {{"tokens", position.tokens},
                  {"data.epoch", position.data.epoch},
                  {"data.instance", position.data.instance},
                  {"data.fingerprint", data_fingerprint(data)},
                  {"random.seed", static_cast<int64_t>(config.train.seed)}};
  const fs::path directory = checkpoints_directory(config);
  ensure_directory(directory);
  const fs::path tokenizer = fs::path(config.data.directory) / data.tokenizer_file;
  save_checkpoint(directory, state, named_tensors(store), std::span(&tokenizer, 1),
                  {.threads = static_cast<int>(config.run.threads)});
  prune_checkpoints(
      directory, {.newest = config.checkpoint.keep, .multiples_of = config.checkpoint.keep_every});
}

TrainingPosition load_training(const RunConfig& config, const ParameterStore& store,
                               const Manifest& data, const Logger& logger) {
  const LatestCheckpoint latest = latest_checkpoint(checkpoints_directory(config));
  for (const BrokenCheckpoint& broken : latest.newer_broken) {
    logger.warn("{} is passed over: {}", broken.path.string(), broken.problem);
  }
  if (!latest.path) {
    throw Error("{} holds no complete checkpoint to resume from; start the run without --resume",
                checkpoints_directory(config).string());
  }
  const CheckpointReader reader(*latest.path);
  const CheckpointState& state = reader.state();
  if (state.text("data.fingerprint") != data_fingerprint(data)) {
    throw Error(
        "{} was trained on other data than {} holds now; resume with the data it was "
        "started with",
        latest.path->string(), config.data.directory);
  }
  if (state.integer("random.seed") != static_cast<int64_t>(config.train.seed)) {
    throw Error(
        "{} was started with train.seed = {}, the configuration says {}; resume with the "
        "same seed",
        latest.path->string(), state.integer("random.seed"), config.train.seed);
  }
  reader.load_all(named_tensors(store), static_cast<int>(config.run.threads));
  store.masters_to_weights();
  return {.step = state.step,
          .tokens = state.integer("tokens"),
          .data = {state.integer("data.epoch"), state.integer("data.instance")}};
}

}  // namespace tessera
