#include "model/families/families.h"

namespace tessera {

// The preset of OLMoE-1B-7B; fields that are not set keep the defaults of ModelConfig.
ModelConfig olmoe_family() {
  ModelConfig config;
  config.family = Family::olmoe;
  config.layers = 16;
  config.hidden_size = 2048;
  config.heads = 16;
  config.kv_heads = 16;
  config.experts = 64;
  config.experts_per_token = 8;
  config.expert_size = 1024;
  config.query_key_norm = QueryKeyNorm::projection;
  config.rope_theta = 1e4;
  config.balance_coefficient = 0.01;
  config.balance_form = BalanceForm::per_layer;
  config.router_z_coefficient = 0.001;
  config.initialization_deviation = 0.02;
  config.initialization_cutoff = 3;
  return config;
}

}  // namespace tessera
