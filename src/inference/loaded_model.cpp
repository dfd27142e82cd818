#include "inference/loaded_model.h"

#include <fmt/format.h>

#include "checkpoint/carried_files.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/hugging_face/import.h"
#include "checkpoint/hugging_face/token_ids.h"
#include "config/load_config.h"
#include "config/phases.h"
#include "model/model.h"
#include "plan/programs.h"
#include "tensor/alignment.h"
#include "tensor/device_precision.h"

namespace tessera {
namespace {

/// Returns the token that ends texts of an imported model if its config.json names none; -1 if
/// there is no such token.
int64_t default_end_token(const CheckpointReader& reader, const ModelConfig& model) {
  const std::string key(hugging_face::kArchitectureState);
  if (!reader.state().values.contains(key)) return -1;
  const auto* architecture = hugging_face::find_architecture(reader.state().text(key));
  if (architecture == nullptr) return -1;
  return hugging_face::default_token_id(*architecture, "eos_token_id", model.vocabulary_size);
}

/// Returns the end tokens of generation_config.json, as transformers does. If it names none,
/// returns those of config.json.
std::vector<int32_t> carried_end_tokens(const CheckpointReader& reader, const ModelConfig& model) {
  for (const std::string_view name :
       {hugging_face::kGenerationConfigName, hugging_face::kConfigName}) {
    for (const CheckpointFile& file : reader.manifest().extra_files) {
      if (file.name != name) continue;
      auto tokens = hugging_face::read_end_tokens(
          reader.extra_file(file.name), (reader.path() / file.name).string(),
          name == hugging_face::kConfigName ? default_end_token(reader, model) : -1);
      if (!tokens.empty()) return tokens;
    }
  }
  return {};
}

LoadedModel load_from(const fs::path& checkpoint, int threads) {
  const CheckpointReader reader(checkpoint);
  LoadedModel loaded;
  loaded.checkpoint = reader.path();
  loaded.step = reader.state().step;
  loaded.config = config_of_weights(
      parse_config(reader.state().config, (reader.path() / "config.toml").string()), loaded.step);
  loaded.config.model = inference_config(loaded.config.model);
  loaded.tokenizer = load_carried_tokenizer(reader);
  loaded.end_tokens = carried_end_tokens(reader, loaded.config.model);
  loaded.parameters =
      model_parameters(loaded.config.model, compute_dtype(loaded.config.train.precision));
  loaded.weights = unit_tensors(loaded.parameters);
  // Values are read as f32, or as f64 for a model in f64. Weights of that type are read in place;
  // the others are read into tensors of their own and then converted.
  std::vector<NamedTensor> masters;
  for (const ParameterSpec& spec : loaded.parameters.specs()) {
    const DType stored = accumulation_dtype(spec.dtype);
    masters.push_back(
        {"parameters", spec.name,
         stored == spec.dtype ? loaded.weight(masters.size()) : Tensor(spec.shape, stored)});
  }
  const std::string group = "parameters";
  reader.require_all(masters, &group);
  reader.load_each(masters, threads);
  for (size_t i = 0; i < masters.size(); ++i) {
    const Tensor weight = loaded.weight(i);
    if (masters[i].tensor.dtype() != weight.dtype()) convert(masters[i].tensor, weight);
  }
  return loaded;
}

}  // namespace

GivenTensors unit_tensors(const ParameterList& parameters) {
  GivenTensors units;
  for (const ParameterUnit& unit : parameters.units()) {
    units.emplace(unit.name, Tensor({unit.elements}, unit.dtype));
  }
  return units;
}

Tensor LoadedModel::weight(size_t index) const {
  const ParameterSpec& spec = parameters.specs()[index];
  const ParameterUnit& unit = parameters.units()[static_cast<size_t>(spec.unit_index)];
  return weights.at(unit.name).view(spec.unit_offset, spec.shape);
}

void LoadedModel::move_to(Runtime& runtime) {
  if (runtime.accelerator() == nullptr) return;
  require_precision(runtime.target().device, config.train.precision,
                    fmt::format("train.precision of {}", checkpoint.string()), "--device cpu");
  int64_t bytes = 0;
  for (const auto& [name, tensor] : weights) bytes += round_up(tensor.bytes(), kAlignment);
  device_memory = std::make_unique<Arena>(bytes, runtime.accelerator());
  int64_t offset = 0;
  for (auto& [name, tensor] : weights) {
    const Tensor moved = device_memory->at(offset, tensor.shape(), tensor.dtype());
    upload({tensor.raw(), static_cast<size_t>(tensor.bytes())}, moved);
    offset += round_up(tensor.bytes(), kAlignment);
    tensor = moved;
  }
}

LoadedModel load_model(const fs::path& path, int threads, const Logger& logger) {
  return read_chosen(path, logger,
                     [&](const fs::path& checkpoint) { return load_from(checkpoint, threads); });
}

}  // namespace tessera
