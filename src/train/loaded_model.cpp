#include "train/loaded_model.h"

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "config/load_config.h"
#include "model/model.h"
#include "train/evaluate.h"

namespace tessera {

LoadedModel load_model(const fs::path& path, MemoryPool& pool, int threads) {
  const CheckpointReader reader(find_checkpoint(path));
  LoadedModel loaded;
  loaded.checkpoint = reader.path();
  loaded.step = reader.state().step;
  loaded.config = parse_config(reader.state().config, (reader.path() / "config.toml").string());
  loaded.config.model = inference_config(loaded.config.model);
  loaded.tokenizer = load_tokenizer(reader.path());
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

}  // namespace tessera
