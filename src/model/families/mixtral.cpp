#include "model/families/families.h"

namespace tessera {

// The preset of Mixtral 8x7B; fields that are not set keep the defaults of ModelConfig.
ModelConfig mixtral_family() {
  ModelConfig config;
  config.family = Family::mixtral;
  config.layers = 32;
  config.hidden_size = 4096;
  config.heads = 32;
  config.kv_heads = 8;
  config.experts = 8;
  config.experts_per_token = 2;
  config.expert_size = 14336;
  config.rope_theta = 1e6;
  config.renormalise_weights = true;
  config.balance_coefficient = 0.02;
  config.balance_form = BalanceForm::pooled;
  config.initialization_deviation = 0.02;
  return config;
}

}  // namespace tessera
