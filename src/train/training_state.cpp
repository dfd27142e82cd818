#include "train/training_state.h"

#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/prune.h"
#include "checkpoint/save.h"
#include "config/differences.h"
#include "config/load_config.h"
#include "data/tokenizer.h"
#include "train/data_state.h"
#include "train/initial_weights.h"

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

/// The files that keep_tokenizer() and prepared data keep.
std::vector<fs::path> tokenizer_files(const RunConfig& config, const DataTokenizer& tokenizer) {
  const bool prepared = config.data.tokenizer.empty();
  const fs::path folder = prepared ? tokenizer.origin : config.run.directory;
  std::vector<fs::path> files;
  for (const std::string& name : tokenizer.file_names) files.push_back(folder / name);
  return files;
}

/// A checkpoint whose bytes are not those that were saved: an older one may do.
class DamagedCheckpoint : public Error {
 public:
  using Error::Error;
};

/// Whether a key may change between a run's parts. The model, the data's order and the batches may
/// not: their change would go on as another run, unnoticed.
bool may_change(std::string_view key) {
  for (const std::string_view fixed :
       {"model.", "data.context", "data.document_mask", "train.precision", "train.micro_batch",
        "train.global_batch", "train.seed"}) {
    if (key.starts_with(fixed)) return false;
  }
  return true;
}

/// What a changed key changes in the rest of the run, worth a line in the log.
bool changes_training(std::string_view key) {
  return key.starts_with("optimizer.") || key == "train.steps";
}

void require_same_run(const CheckpointReader& reader, const RunConfig& config,
                      const Logger& logger) {
  const CheckpointState& state = reader.state();
  const std::string path = reader.path().string();
  for (const auto& [key, saved, given] : differences(parse_config(state.config, path), config)) {
    if (!may_change(key)) {
      throw Error(
          "{} was saved with {} = {}, the configuration says {}; resume with the same, or "
          "start another run",
          path, key, saved, given);
    }
    if (changes_training(key)) logger.warn("{} changes from {} to {}", key, saved, given);
  }
}

TrainingPosition load_checkpoint(const fs::path& path, const RunConfig& config,
                                 const ParameterStore& store, const TrainingData& data,
                                 const Logger& logger) {
  const auto undamaged = [](const auto& read) {
    try {
      return read();
    } catch (const Error& error) {
      throw DamagedCheckpoint(std::string(error.what()));
    }
  };
  const CheckpointReader reader = undamaged([&] { return CheckpointReader(path); });
  require_same_run(reader, config, logger);
  const LoaderState position = restored_state(reader.state(), data, reader.path().string(), logger);
  undamaged([&] { reader.load_all(named_tensors(store), static_cast<int>(config.run.threads)); });
  store.masters_to_weights();
  const CheckpointState& state = reader.state();
  return {.step = state.step, .tokens = state.integer("tokens"), .data = position};
}

}  // namespace

fs::path checkpoints_directory(const RunConfig& config) {
  return fs::path(config.run.directory) / kCheckpointsName;
}

void save_training(const RunConfig& config, const ParameterStore& store,
                   const TrainingPosition& position, const TrainingData& data) {
  CheckpointState state;
  state.step = position.step;
  state.config = to_toml(config);
  state.values = data_values(data, position.data);
  state.values["tokens"] = position.tokens;
  state.values["random.seed"] = static_cast<int64_t>(config.train.seed);
  const fs::path directory = checkpoints_directory(config);
  ensure_directory(directory);
  std::vector<fs::path> files = tokenizer_files(config, data.tokenizer);
  add_carried_files(config, files);
  save_checkpoint(directory, state, named_tensors(store), files,
                  {.threads = static_cast<int>(config.run.threads)});
  prune_checkpoints(
      directory, {.newest = config.checkpoint.keep, .multiples_of = config.checkpoint.keep_every});
}

void keep_tokenizer(const RunConfig& config) {
  if (config.data.tokenizer.empty()) return;
  load_tokenizer(config.data.tokenizer)->save(config.run.directory);
}

bool holds_checkpoints(const RunConfig& config) {
  const CheckpointListing listing = list_checkpoints(checkpoints_directory(config));
  return !listing.complete.empty() || !listing.broken.empty();
}

TrainingPosition load_training(const RunConfig& config, const ParameterStore& store,
                               const TrainingData& data, const Logger& logger) {
  const CheckpointListing listing = list_checkpoints(checkpoints_directory(config));
  for (const BrokenCheckpoint& broken : listing.broken) {
    logger.warn("{} is passed over: {}", broken.path.string(), broken.problem);
  }
  std::string last_problem = "there is none";
  for (auto found = listing.complete.rbegin(); found != listing.complete.rend(); ++found) {
    try {
      return load_checkpoint(found->path, config, store, data, logger);
    } catch (const DamagedCheckpoint& damaged) {
      last_problem = damaged.what();
      logger.warn("{} is damaged and passed over: {}", found->path.string(), last_problem);
    }
  }
  throw Error(
      "{} holds no complete checkpoint to resume from ({}); start the run without --resume "
      "in another run.directory",
      checkpoints_directory(config).string(), last_problem);
}

}  // namespace tessera
