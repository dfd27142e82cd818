#include "inference/loaded_model.h"

#include "checkpoint/carried_files.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/hugging_face/import.h"
#include "checkpoint/hugging_face/token_ids.h"
#include "config/load_config.h"
#include "model/model.h"
#include "plan/programs.h"

namespace tessera {
namespace {

/// generation_config.json decides, as in transformers; config.json where it says nothing.
std::vector<int32_t> carried_end_tokens(const CheckpointReader& reader) {
  for (const std::string_view name :
       {hugging_face::kGenerationConfigName, hugging_face::kConfigName}) {
    for (const CheckpointFile& file : reader.manifest().extra_files) {
      if (file.name != name) continue;
      auto tokens = hugging_face::read_end_tokens(reader.extra_file(file.name),
                                                  (reader.path() / file.name).string());
      if (!tokens.empty()) return tokens;
    }
  }
  return {};
}

LoadedModel load_chosen(const fs::path& checkpoint, MemoryPool& pool, int threads) {
  const CheckpointReader reader(checkpoint);
  LoadedModel loaded;
  loaded.checkpoint = reader.path();
  loaded.step = reader.state().step;
  loaded.config = parse_config(reader.state().config, (reader.path() / "config.toml").string());
  loaded.config.model = inference_config(loaded.config.model);
  loaded.tokenizer = load_carried_tokenizer(reader);
  loaded.end_tokens = carried_end_tokens(reader);
  loaded.specs =
      model_parameters(loaded.config.model, compute_dtype(loaded.config.train.precision));
  std::vector<NamedTensor> masters;
  for (const ParameterSpec& spec : loaded.specs) {
    loaded.weights.emplace_back(pool, spec.shape, spec.dtype);
    const DType stored = accumulation_dtype(spec.dtype);
    masters.push_back(
        {"parameters", spec.name,
         stored == spec.dtype ? loaded.weights.back() : Tensor(pool, spec.shape, stored)});
  }
  reader.load_group("parameters", masters, threads);
  for (size_t i = 0; i < masters.size(); ++i) {
    if (masters[i].tensor.dtype() != loaded.weights[i].dtype()) {
      convert(masters[i].tensor, loaded.weights[i]);
    }
  }
  return loaded;
}

}  // namespace

LoadedModel load_model(const fs::path& path, MemoryPool& pool, int threads, const Logger& logger) {
  const ChosenCheckpoint chosen = find_checkpoint(path);
  warn_of_newer(chosen, logger);
  return read_or_advise(chosen.path, [&] { return load_chosen(chosen.path, pool, threads); });
}

}  // namespace tessera
