#include "train/parity/reference_model.h"

#include <algorithm>
#include <map>

#include "support/joined_convolutions.h"

namespace tessera::testing {
namespace {

/// The sizes that tests/reference/models.py gives all its models, over a family's preset.
ModelConfig tiny(const std::string& family) {
  ModelConfig config = family_preset(from_word<Family>(family));
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
  config.balance_form = BalanceForm::pooled;
  return config;
}

/// Those of tests/reference/zaya_models.py.
ModelConfig tiny_zaya(int64_t layers, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  ModelConfig config = family_preset(Family::zaya);
  config.layers = layers;
  config.hidden_size = 16;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.vocabulary_size = 32;
  config.balance_bias_rate = 1e-12;  // in transformers' classes the biases stay as they are
  return config;
}

void add_zaya(std::map<std::string, ModelConfig>& configs) {
  ModelConfig& zaya = configs["zaya"] = tiny_zaya(3, 4, 2, 8);
  zaya.experts = 6;
  zaya.expert_size = 4;
  zaya.router_size = 8;
  ModelConfig& untied = configs["zaya_untied"] = tiny_zaya(2, 3, 1, 12);
  untied.experts = 4;
  untied.expert_size = 6;
  untied.router_size = 10;
  untied.tied_head = false;
  untied.rope_theta = 500;
  ModelConfig& ungrouped = configs["zaya_ungrouped"] = tiny_zaya(2, 4, 4, 4);
  ungrouped.experts = 3;
  ungrouped.expert_size = 4;
  ungrouped.router_size = 6;
  ungrouped.rope_theta = 1e6;
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
  scaled.rope_scaling = RopeScaling::llama3;
  scaled.rope_factor = 8;
  scaled.rope_low_frequency_factor = 1;
  scaled.rope_high_frequency_factor = 4;
  scaled.rope_original_context = 64;
  ModelConfig& mixtral = configs["mixtral"] = tiny_mixture("mixtral", 2);
  mixtral.kv_heads = 2;
  add_zaya(configs);
  return configs;
}

}  // namespace

ReferenceModel::ReferenceModel(const std::string& name)
    : config_(configs().at(name)), tensors_(fs::path("models") / name) {
  const std::vector<int64_t> shape = tensors_.shape("tokens");
  steps_ = shape.at(0);
  sequences_ = shape.at(1);
  context_ = shape.at(2);
}

std::vector<float> ReferenceModel::expected(const std::string& name) const {
  const ReferencePart part = reference_part(name);
  const std::vector<float> all = tensors_.f32(part.name);
  return all.size() == 1 ? all : cut_to(all, part, config_);  // one number is of both parts
}

std::vector<double> ReferenceModel::expected_f64(const std::string& name) const {
  const ReferencePart part = reference_part(name);
  return cut_to(tensors_.f64(part.name), part, config_);
}

double ReferenceModel::expected_error(const std::string& parameter) const {
  constexpr size_t kFew = 128;
  const std::string prefix = "gradient_error_bf16/";
  const double own = expected(prefix + parameter)[0];
  if (expected("gradient/" + parameter).size() > kFew) return own;
  std::vector<double> all;
  for (const std::string& name : tensors_.names()) {
    if (name.starts_with(prefix)) all.push_back(tensors_.f32(name)[0]);
  }
  std::ranges::nth_element(all, all.begin() + std::ssize(all) / 2);
  return std::max(own, all[all.size() / 2]);
}

std::vector<std::string> ReferenceModel::names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : configs()) names.push_back(name);
  return names;
}

OptimizerConfig ReferenceModel::optimizer() {
  OptimizerConfig optimizer;
  optimizer.weight_decay = 0.1;
  optimizer.decay_rule = DecayRule::all;
  optimizer.beta1 = 0.9;
  optimizer.beta2 = 0.95;
  // AdamW divides a gradient by its own size: with a smaller epsilon the steps of entries that are
  // nearly zero would be those of their rounding errors, theirs and ours.
  optimizer.epsilon = 1e-5;
  optimizer.clip_norm = 1;
  optimizer.learning_rate = 1e-3;
  optimizer.schedule = Schedule::constant;
  optimizer.warmup_steps = 0;
  return optimizer;
}

Batch ReferenceModel::batch(int64_t step) const {
  const std::vector<int32_t> all = tensors_.i32("tokens");
  const int64_t tokens = sequences_ * context_;
  Batch batch;
  batch.rows = sequences_;
  batch.context = context_;
  batch.tokens.assign(all.begin() + step * tokens, all.begin() + (step + 1) * tokens);
  constexpr int32_t kNoSuchToken = -1;  // no document ends within a sequence
  complete_batch(batch, kNoSuchToken);
  return batch;
}

}  // namespace tessera::testing
