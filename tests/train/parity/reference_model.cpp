#include "train/parity/reference_model.h"

#include <cstring>
#include <map>

#include "base/error.h"

namespace tessera::testing {
namespace {

/// The sizes that tests/reference/models.py gives all its models, over a family's preset.
ModelConfig tiny(const std::string& family) {
  ModelConfig config = family_preset(family);
  config.layers = 2;
  config.hidden_size = 32;
  config.heads = 4;
  config.kv_heads = 4;
  config.vocabulary_size = 48;
  config.router_z_coefficient = 0;  // transformers has none
  return config;
}

ModelConfig tiny_llama() {
  ModelConfig config = tiny("llama");
  config.kv_heads = 2;
  config.feed_forward_size = 24;
  config.rope_theta = 500;
  return config;
}

ModelConfig tiny_mixture(const std::string& family, int64_t experts_per_token) {
  ModelConfig config = tiny(family);
  config.experts = 6;
  config.experts_per_token = experts_per_token;
  config.expert_size = 8;
  config.balance_form = "pooled";
  return config;
}

std::map<std::string, ModelConfig> configs() {
  std::map<std::string, ModelConfig> configs;
  ModelConfig& olmo = configs["olmo"] = tiny("olmo");
  olmo.feed_forward_size = 24;
  olmo.clip_qkv = 0.6;
  ModelConfig& olmoe = configs["olmoe"] = tiny_mixture("olmoe", 3);
  olmoe.clip_qkv = 2.5;
  olmoe.balance_coefficient = 0.03;
  configs["llama"] = tiny_llama();
  ModelConfig& tied = configs["llama_tied"] = tiny_llama();
  tied.kv_heads = 1;
  tied.tied_head = true;
  ModelConfig& scaled = configs["llama_rope_scaling"] = tiny_llama();
  scaled.rope_scaling = "llama3";
  scaled.rope_factor = 8;
  scaled.rope_low_frequency_factor = 1;
  scaled.rope_high_frequency_factor = 4;
  scaled.rope_original_context = 64;
  ModelConfig& mixtral = configs["mixtral"] = tiny_mixture("mixtral", 2);
  mixtral.kv_heads = 2;
  return configs;
}

fs::path fixture(const std::string& name) {
  return fs::path(TESSERA_SOURCE) / "tests" / "fixtures" / "models" / name;
}

}  // namespace

ReferenceModel::ReferenceModel(const std::string& name)
    : config_(configs().at(name)), file_(fixture(name) / "expected.safetensors") {
  const SafetensorsEntry* tokens = file_.find("tokens");
  TESSERA_CHECK(tokens != nullptr && tokens->shape.size() == 3, "{} has no tokens", name);
  steps_ = tokens->shape[0];
  sequences_ = tokens->shape[1];
  context_ = tokens->shape[2];
}

std::vector<std::string> ReferenceModel::names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : configs()) names.push_back(name);
  return names;
}

Batch ReferenceModel::batch(int64_t step) const {
  const int64_t tokens = sequences_ * context_;
  Batch batch;
  batch.rows = sequences_;
  batch.context = context_;
  batch.tokens.resize(static_cast<size_t>(tokens));
  const auto bytes = file_.bytes(*file_.find("tokens"));
  std::memcpy(batch.tokens.data(), bytes.data() + step * tokens * 4,
              static_cast<size_t>(tokens) * 4);
  constexpr int32_t kNoSuchToken = -1;  // no document ends within a sequence
  complete_batch(batch, kNoSuchToken);
  return batch;
}

std::vector<float> ReferenceModel::expected(const std::string& name) const {
  const SafetensorsEntry* entry = file_.find(name);
  TESSERA_CHECK(entry != nullptr && entry->dtype == "F32", "{} has no f32 tensor {}",
                file_.path().string(), name);
  std::vector<float> values(static_cast<size_t>(entry->bytes()) / sizeof(float));
  std::memcpy(values.data(), file_.bytes(*entry).data(), static_cast<size_t>(entry->bytes()));
  return values;
}

}  // namespace tessera::testing
