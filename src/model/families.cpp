#include "base/error.h"
#include "model/model_config.h"

namespace tessera {

// The published families. Each is a preset over the same layers, at the size of its best known
// model. Fields that are not set keep the defaults of ModelConfig.
ModelConfig family_preset(Family family) {
  ModelConfig config;
  config.family = family;
  switch (family) {
    // Llama 3 8B (Dubey et al., 2024): dense, grouped queries. Llama 3.1 sets rope_scaling.
    case Family::llama:
      config.layers = 32;
      config.hidden_size = 4096;
      config.heads = 32;
      config.kv_heads = 8;
      config.feed_forward_size = 14336;
      config.rope_theta = 5e5;
      config.initialization_deviation = 0.02;
      return config;
    // Mixtral 8x7B (Jiang et al., 2024): 8 experts, 2 chosen, whose weights sum to one.
    case Family::mixtral:
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
    // OLMo-1B (Groeneveld et al., 2024): dense, layer norm without parameters, tied head.
    case Family::olmo:
      config.layers = 16;
      config.hidden_size = 2048;
      config.heads = 16;
      config.kv_heads = 16;
      config.feed_forward_size = 8192;
      config.norm = NormKind::layer;
      config.norm_weights = false;
      config.tied_head = true;
      config.rope_theta = 1e4;
      config.initialization_deviation = 0.02;
      return config;
    // OLMoE-1B-7B (Muennighoff et al., 2024): 8 of 64 experts, norm of whole queries and keys.
    case Family::olmoe:
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
    // ZAYA1-base (Anthony et al., 2025): 16 experts, 1 chosen or none, compressed convolutional
    // attention, depth-averaged routers, residual scaling. A token that visits no expert gets zero,
    // as in the public classes of transformers.
    case Family::zaya:
      config.layers = 40;
      config.hidden_size = 2048;
      config.heads = 8;
      config.kv_heads = 2;
      config.head_dim = 128;
      config.experts = 16;
      config.experts_per_token = 1;
      config.expert_size = 2048;
      config.attention = AttentionKind::compressed_convolutional;
      config.rotary_fraction = 0.5;
      config.rope_theta = 1e4;
      config.tied_head = true;
      config.initialization_deviation = 0.02;
      config.residual_scaling = true;
      config.router = RouterKind::depth_averaged;
      config.router_size = 256;
      config.skip_expert = SkipExpert::zero;
      config.balance_biases = BiasBalancing::controller;
      return config;
  }
  throw InternalError("an unknown family");
}

}  // namespace tessera
