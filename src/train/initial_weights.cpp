#include "train/initial_weights.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/carried_files.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/find_checkpoint.h"
#include "config/differences.h"
#include "config/load_config.h"
#include "config/phases.h"
#include "config/read_for_key.h"
#include "data/tokenizer.h"
#include "train/load_state.h"

namespace tessera {
namespace {

/// The keys of [model] that concern training only, not the meaning of the weights.
constexpr std::array<std::string_view, 12> kTrainingKeys{
    "model.max_context",           "model.balance_coefficient",
    "model.balance_form",          "model.balance_tokens",
    "model.capacity_factor",       "model.router_z_coefficient",
    "model.initialization",        "model.forced_uniform_routing",
    "model.z_loss_coefficient",    "model.initialization_deviation",
    "model.initialization_cutoff", "model.balance_bias_rate"};

/// Opens the initial checkpoint. Logs newer checkpoints that are skipped.
CheckpointReader open_initial(const std::string& initial, const Logger& logger) {
  return read_for_key("checkpoint.initial", initial, [&] {
    return read_chosen(initial, logger,
                       [](const fs::path& path) { return CheckpointReader(path); });
  });
}

ModelConfig model_of(const CheckpointReader& reader) {
  const RunConfig saved =
      parse_config(reader.state().config, (reader.path() / kCheckpointConfigName).string());
  return config_of_weights(saved, reader.state().step).model;
}

void require_same_model(const ModelConfig& initial, const RunConfig& config, const Logger& logger) {
  RunConfig saved = config;
  saved.model = initial;
  // All rules that balance by router biases have the same parameters, so one may replace another.
  const bool both_balance = initial.balance_biases != BiasBalancing::none &&
                            config.model.balance_biases != BiasBalancing::none;
  std::vector<std::string> lines;
  for (const auto& [key, weights_value, given] : differences(saved, config)) {
    if (std::ranges::find(kTrainingKeys, key) != kTrainingKeys.end()) continue;
    if (key == "model.balance_biases" && both_balance) continue;
    if (key.starts_with("model.rope_")) {
      logger.warn("{} is {} for the initial weights and {} from here on", key, weights_value,
                  given);
      continue;
    }
    lines.push_back(fmt::format("{} is {} for the weights, {} in the configuration", key,
                                weights_value, given));
  }
  if (lines.empty()) return;
  throw Error(
      "the weights of checkpoint.initial = \"{}\" are those of another model; leave these keys out "
      "to take its own:\n  {}",
      config.checkpoint.initial, join(lines, "\n  "));
}

/// Returns whether the checkpoint carries the tokenizer of the data. A tokenizer that Tessera
/// cannot read is not that of the data. Throws Error if the carried tokenizer is damaged.
bool carries_tokenizer(const CheckpointReader& reader, const DataTokenizer& tokenizer) {
  verify_carried_tokenizer(reader);
  try {
    return load_tokenizer(reader.path())->fingerprint() == tokenizer.fingerprint;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

ModelConfig initial_model(const RunConfig& named) {
  return model_of(open_initial(named.checkpoint.initial, Logger::silent()));
}

void load_initial_weights(const RunConfig& config, const ParameterStore& store,
                          const Logger& logger, const StateRanks& ranks) {
  std::optional<CheckpointReader> reader;
  ranks.control.together([&] {
    reader.emplace(open_initial(config.checkpoint.initial, logger));
    require_same_model(model_of(*reader), config, logger);
  });
  require_same_checkpoint(*reader, ranks.control);
  read_or_advise(reader->path(), [&] {
    load_state(*reader, store.tensors_of_all_stages({Kept::master}), "parameters", ranks);
  });
  store.masters_to_weights();
  logger.info("starting with the weights of {} (step {})", reader->path().string(),
              reader->state().step);
}

std::vector<CarriedFile> initial_files(const RunConfig& config, const DataTokenizer& tokenizer,
                                       const Logger& logger) {
  std::vector<CarriedFile> files = tokenizer_files(tokenizer);
  if (config.checkpoint.initial.empty()) return files;
  const CheckpointReader reader = open_initial(config.checkpoint.initial, Logger::silent());
  if (carries_tokenizer(reader, tokenizer)) {
    add_other_files(reader, files, logger);
  } else {
    logger.warn(
        "{} does not carry the tokenizer of the data ({}): its tokenizer files are left behind",
        reader.path().string(), tokenizer.origin);
  }
  return files;
}

}  // namespace tessera
