#include "train/training_state.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/links.h"
#include "base/text.h"
#include "checkpoint/carried_files.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/find_checkpoint.h"
#include "config/load_config.h"
#include "config/phases.h"
#include "train/data_state.h"
#include "train/load_state.h"
#include "train/same_training.h"

// A checkpoint of a run holds its kept tensors (the master weights, and the optimizer's moments), a
// list of named values (step, tokens, position in the data, token sets), the configuration and the
// carried files (the tokenizer). save_training() collects all of these on every rank and gives them
// to save_state(), in which each rank writes a share of the tensors. load_training() tries the
// complete checkpoints from the newest on until one is undamaged, checks that it is of this run,
// and fills the tensors. The other functions look at a run's folder before it begins or resumes.

namespace tessera {
namespace {

/// Returns the tensors that a checkpoint consists of.
std::vector<const KeptTensor*> saved_tensors(const ParameterStore& store) {
  std::vector<const KeptTensor*> tensors = store.tensors_of_all_stages({Kept::master});
  std::ranges::copy(store.tensors_of_all_stages({Kept::first_moment, Kept::second_moment}),
                    std::back_inserter(tensors));
  return tensors;
}

// The names of state values.
constexpr const char* kTokensName = "tokens";                   // every checkpoint of a run has it
constexpr const char* kMicroBatchesName = "micro_batches";      // counted by a controller of biases
constexpr const char* kUnsavedMetricsName = "unsaved_metrics";  // metrics in the checkpoint only

bool has_controller(const RunConfig& config) {
  return config.model.balance_biases == BiasBalancing::controller;
}

/// Returns the advice for a folder that holds a model and not a run.
std::string import_advice(const fs::path& model) {
  return fmt::format(
      "a run that is to begin with these weights needs another run.directory, no --resume, and "
      "checkpoint.initial = \"{}\"",
      model.string());
}

/// Throws Error if a checkpoint holds no state of training.
void require_trained(const CheckpointState& state, const fs::path& path) {
  if (state.values.contains(kTokensName)) return;
  throw Error(
      "{} holds weights without a state of training: `checkpoint import` wrote it, not a "
      "run; {}",
      path.string(), import_advice(path));
}

/// Loads a checkpoint on all ranks and returns its position. Throws DamagedCheckpoint on all ranks
/// if one finds it damaged. Sets config.checkpoint.initial only after all else has succeeded.
TrainingPosition load_checkpoint(const fs::path& path, RunConfig& config,
                                 const ParameterStore& store, const RunData& data,
                                 const Logger& logger, const StateRanks& ranks) {
  const CheckpointReader reader = open_together(path, ranks);
  const std::string origin = reader.path().string();
  TrainingPosition result;
  std::string initial;
  ranks.control.together([&] {
    const CheckpointState& state = reader.state();
    require_trained(state, reader.path());
    const RunConfig saved = parse_config(state.config, origin);
    require_same_training(state, saved, config, ranks.mesh(), origin, logger);
    const size_t phase = phase_at(phases_of(config), state.step);
    const bool unsaved_metrics = state.values.contains(kUnsavedMetricsName);
    initial = saved.checkpoint.initial;
    result = {.step = state.step,
              .tokens = state.integer(kTokensName),
              .micro_batches = has_controller(saved) ? state.integer(kMicroBatchesName) : 0,
              .data = restored_state(state, data.all_sources(phase), origin, logger),
              .carried = tokenizer_files(data.tokenizer()),
              .unsaved_metrics = unsaved_metrics ? state.text(kUnsavedMetricsName) : ""};
    add_other_files(reader, result.carried, logger);
  });
  load_state(reader, saved_tensors(store), {}, ranks);
  store.masters_to_weights();
  config.checkpoint.initial = initial;
  return result;
}

/// Removes the partial checkpoint of a killed process. Saving would remove it too, but a run with
/// no step left saves nothing. A failure is only logged: the files do no harm.
void remove_unfinished(const fs::path& directory, const Logger& logger) {
  try {
    prune_checkpoints(directory, {.newest = 0});
  } catch (const Error& error) {
    logger.warn("what a killed process left in {} stays: {}", directory.string(), error.what());
  }
}

std::string steps_text(const CheckpointListing& listing) {
  if (listing.complete.empty()) return "none";
  std::vector<std::string> steps;
  for (const FoundCheckpoint& found : listing.complete) steps.push_back(std::to_string(found.step));
  return "those of step " + join(steps, ", ");
}

/// Throws Error on all ranks, which names a rank that sees other checkpoints than the first.
void require_same_listing(const CheckpointListing& listing, const fs::path& directory,
                          const RankControl& control) {
  const std::string own = steps_text(listing);
  const std::string first =
      control.any_text(control.is_first() ? std::optional(own) : std::nullopt).value_or("");
  control.together([&] {
    if (own == first) return;
    throw Error(
        "of the checkpoints of {} this rank sees {}, and rank 0 {}; run.directory must be in a "
        "file system that all ranks share",
        directory.string(), own, first);
  });
}

bool is_empty(const CheckpointListing& listing) {
  return listing.complete.empty() && listing.broken.empty();
}

/// Throws Error if `checkpoint import` wrote its model into the run's folder itself.
void require_no_import_beside(const RunConfig& config) {
  const fs::path directory = config.run.directory;
  const CheckpointListing beside = list_checkpoints(directory);
  if (is_empty(beside)) return;
  const fs::path& found =
      beside.complete.empty() ? beside.broken.front().path : beside.complete.back().path;
  throw Error(
      "{} holds {}, a checkpoint that `checkpoint import` wrote or that was put there, where a run "
      "has its checkpoints in {}; {}",
      directory.string(), found.filename().string(), checkpoints_directory(config).string(),
      import_advice(directory));
}

[[noreturn]] void refuse_to_resume(const RunConfig& config, const std::string& problem) {
  const fs::path directory = checkpoints_directory(config);
  require_no_import_beside(config);
  const bool holds_some = !is_empty(list_checkpoints(directory));
  throw Error(
      "{} holds no complete checkpoint to resume from ({}{}); start the run without --resume{}",
      directory.string(), problem, dangling_link_text(directory),
      holds_some ? " in another run.directory" : "");
}

/// Returns read(path) of the newest complete checkpoint that is not damaged. Logs those that are.
/// Throws Error if there is none.
template <typename Read>
auto read_newest(const RunConfig& config, const CheckpointListing& listing, const Logger& logger,
                 Read&& read) {
  std::string last_problem = "there is none";
  for (auto found = listing.complete.rbegin(); found != listing.complete.rend(); ++found) {
    try {
      return read(found->path);
    } catch (const DamagedCheckpoint& damaged) {
      last_problem = damaged.what();
    }
    logger.warn("{} is damaged and passed over: {}", found->path.string(), last_problem);
  }
  refuse_to_resume(config, last_problem);
}

}  // namespace

fs::path checkpoints_directory(const RunConfig& config) {
  return fs::path(config.run.directory) / kCheckpointsName;
}

void save_training(const RunConfig& config, const ParameterStore& store,
                   const TrainingPosition& position, const RunData& data, const StateRanks& ranks) {
  const std::vector<RunPhase> phases = phases_of(config);
  const size_t phase = phase_at(phases, position.step);
  // Only the first rank's state is written.
  CheckpointState state;
  state.step = position.step;
  state.config = to_toml(config);
  state.values = data_values(data.all_sources(phase), position.data);
  state.values[kTokensName] = position.tokens;
  if (has_controller(config)) state.values[kMicroBatchesName] = position.micro_batches;
  if (!position.unsaved_metrics.empty()) {
    state.values[kUnsavedMetricsName] = position.unsaved_metrics;
  }
  state.values["random.seed"] = static_cast<int64_t>(config.train.seed);
  put_token_sets(state, phases[phase].config, ranks.mesh());
  save_state({.directory = checkpoints_directory(config),
              .state = state,
              .tensors = saved_tensors(store),
              .shard = store.shard(),
              .carried = position.carried},
             {.threads = ranks.runtime.threads()}, ranks);
}

void prune_training(const RunConfig& config) {
  prune_checkpoints(checkpoints_directory(config), {.newest = config.checkpoint.keep,
                                                    .multiples_of = config.checkpoint.keep_every});
}

void require_fresh(const RunConfig& config) {
  require_no_import_beside(config);
  const CheckpointListing listing = list_checkpoints(checkpoints_directory(config));
  if (is_empty(listing)) return;
  if (!listing.complete.empty()) {
    const fs::path& newest = listing.complete.back().path;
    require_trained(read_checkpoint_manifest(newest).state, newest);
  }
  throw Error(
      "{} already holds a run; go on with it by --resume, remove it, or choose another "
      "run.directory",
      config.run.directory);
}

ModelConfig resumed_model(const RunConfig& named) {
  const CheckpointListing listing = list_checkpoints(checkpoints_directory(named));
  return read_newest(named, listing, Logger::silent(), [](const fs::path& path) {
    const CheckpointReader reader(path);
    require_trained(reader.state(), path);
    return parse_config(reader.state().config, path.string()).model;
  });
}

TrainingPosition load_training(RunConfig& config, const ParameterStore& store, const RunData& data,
                               const Logger& logger, const StateRanks& ranks) {
  if (ranks.control.is_first()) remove_unfinished(checkpoints_directory(config), logger);
  ranks.control.wait();
  const CheckpointListing listing = list_checkpoints(checkpoints_directory(config));
  require_same_listing(listing, checkpoints_directory(config), ranks.control);
  for (const BrokenCheckpoint& broken : listing.broken) {
    logger.warn("{} is passed over: {}", broken.path.string(), broken.problem);
  }
  return read_newest(config, listing, logger, [&](const fs::path& path) {
    return load_checkpoint(path, config, store, data, logger, ranks);
  });
}

}  // namespace tessera
