#include "train/initial_weights.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "config/differences.h"
#include "config/load_config.h"
#include "data/tokenizer.h"

namespace tessera {
namespace {

/// Keys of [model] that say how training goes on, not what the weights mean.
constexpr std::array<std::string_view, 10> kOfTraining{
    "model.max_context",          "model.balance_coefficient", "model.balance_form",
    "model.router_z_coefficient", "model.capacity_factor",     "model.forced_uniform_routing",
    "model.z_loss_coefficient",   "model.initialization",      "model.initialization_deviation",
    "model.initialization_cutoff"};

CheckpointReader open_initial(const std::string& initial) {
  try {
    return CheckpointReader(find_checkpoint(initial));
  } catch (const Error& error) {
    throw Error("checkpoint.initial = \"{}\": {}", initial, error.what());
  }
}

ModelConfig model_of(const CheckpointReader& reader) {
  return parse_config(reader.state().config, (reader.path() / kCheckpointConfigName).string())
      .model;
}

void require_same_model(const ModelConfig& initial, const RunConfig& config, const Logger& logger) {
  RunConfig saved = config;
  saved.model = initial;
  std::vector<std::string> lines;
  for (const auto& [key, of_weights, given] : differences(saved, config)) {
    if (std::ranges::find(kOfTraining, key) != kOfTraining.end()) continue;
    if (key.starts_with("model.rope_")) {
      logger.warn("{} is {} for the initial weights and {} from here on", key, of_weights, given);
      continue;
    }
    lines.push_back(
        fmt::format("{} is {} for the weights, {} in the configuration", key, of_weights, given));
  }
  if (lines.empty()) return;
  throw Error(
      "the weights of checkpoint.initial = \"{}\" are those of another model; leave these keys out "
      "to take its own:\n  {}",
      config.checkpoint.initial, join(lines, "\n  "));
}

/// Whether the checkpoint carries the tokenizer of the data. One that Tessera cannot read is not
/// it.
bool carries_tokenizer(const CheckpointReader& reader, const DataTokenizer& tokenizer) {
  try {
    return load_tokenizer(reader.path())->fingerprint() == tokenizer.fingerprint;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

ModelConfig initial_model(const std::string& initial) { return model_of(open_initial(initial)); }

void load_initial_weights(const RunConfig& config, const ParameterStore& store,
                          const Logger& logger) {
  const CheckpointReader reader = open_initial(config.checkpoint.initial);
  require_same_model(model_of(reader), config, logger);
  std::vector<NamedTensor> masters;
  for (const ParameterState& state : store.parameters()) {
    masters.push_back({"parameters", state.spec.name, state.master});
  }
  reader.load_group("parameters", masters, static_cast<int>(config.run.threads));
  store.masters_to_weights();
  logger.info("starting with the weights of {}", reader.path().string());
}

void prepare_carried_files(const RunConfig& config, const DataTokenizer& tokenizer,
                           const Logger& logger) {
  const fs::path folder = fs::path(config.run.directory) / kCarriedName;
  std::error_code ignored;  // where it stays, writing into it fails
  fs::remove_all(folder, ignored);
  if (config.checkpoint.initial.empty()) return;
  const CheckpointReader reader = open_initial(config.checkpoint.initial);
  if (!carries_tokenizer(reader, tokenizer)) {
    logger.warn(
        "{} does not carry the tokenizer of the data ({}): its tokenizer files are left behind",
        reader.path().string(), tokenizer.origin);
    return;
  }
  ensure_directory(folder);
  for (const CheckpointFile& file : reader.manifest().extra_files) {
    if (file.name == kCheckpointConfigName) continue;
    write_file(folder / file.name, read_file(reader.extra_file(file.name)));
  }
}

void add_carried_files(const RunConfig& config, std::vector<fs::path>& files) {
  std::set<fs::path> carried;  // sorted: the system lists a folder in any order
  std::error_code code;
  auto entry = fs::directory_iterator(fs::path(config.run.directory) / kCarriedName, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    if (entry->is_regular_file()) carried.insert(entry->path());
  }
  for (const fs::path& path : carried) {
    const bool there = std::ranges::any_of(
        files, [&](const fs::path& file) { return file.filename() == path.filename(); });
    if (!there) files.push_back(path);
  }
}

}  // namespace tessera
