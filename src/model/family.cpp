#include <map>

#include "base/error.h"
#include "base/text.h"
#include "model/model_config.h"

namespace tessera {
namespace {

/// OLMoE-1B-7B (Muennighoff et al., 2024).
ModelConfig olmoe() {
  ModelConfig config;
  config.family = "olmoe";
  config.layers = 16;
  config.hidden_size = 2048;
  config.heads = 16;
  config.kv_heads = 16;
  config.experts = 64;
  config.experts_per_token = 8;
  config.expert_size = 1024;
  config.query_key_norm = "projection";
  config.rope_theta = 1e4;
  config.balance_coefficient = 0.01;
  config.balance_form = "layer";
  config.router_z_coefficient = 0.001;
  config.initialization_deviation = 0.02;
  config.initialization_cutoff = 3;
  return config;
}

/// Llama 3 8B (Dubey et al., 2024).
ModelConfig llama() {
  ModelConfig config;
  config.family = "llama";
  config.layers = 32;
  config.hidden_size = 4096;
  config.heads = 32;
  config.kv_heads = 8;
  config.feed_forward_size = 14336;
  config.rope_theta = 5e5;
  config.initialization_deviation = 0.02;
  return config;
}

std::map<std::string, ModelConfig> presets() { return {{"olmoe", olmoe()}, {"llama", llama()}}; }

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets()) names.push_back(name);
  return names;
}

ModelConfig family_preset(const std::string& family) {
  const auto known = presets();
  const auto found = known.find(family);
  if (found == known.end()) {
    throw Error("model.family is \"{}\"; known families are {}", family,
                join(family_names(), ", "));
  }
  return found->second;
}

}  // namespace tessera
