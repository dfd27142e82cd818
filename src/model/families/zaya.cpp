#include "model/families/families.h"

namespace tessera {

// The preset of ZAYA1-base; fields that are not set keep the defaults of ModelConfig.
ModelConfig zaya_family() {
  ModelConfig config;
  config.family = Family::zaya;
  config.layers = 40;
  config.hidden_size = 2048;
  config.heads = 8;
  config.kv_heads = 2;
  config.head_dim = 128;
  config.experts = 16;
  config.experts_per_token = 1;
  config.expert_size = 2048;
  config.attention = AttentionKind::compressed_convolutional;
  config.rope_theta = 1e4;
  config.rotary_fraction = 0.5;
  config.tied_head = true;
  config.residual_scaling = true;
  config.router = RouterKind::depth_averaged;
  config.router_size = 256;
  config.skip_expert = SkipExpert::zero;
  config.balance_biases = BiasBalancing::controller;
  config.initialization_deviation = 0.02;
  return config;
}

}  // namespace tessera
