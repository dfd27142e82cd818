#include "model/families/families.h"

namespace tessera {

// The preset of OLMo-1B; fields that are not set keep the defaults of ModelConfig.
ModelConfig olmo_family() {
  ModelConfig config;
  config.family = Family::olmo;
  config.layers = 16;
  config.hidden_size = 2048;
  config.heads = 16;
  config.kv_heads = 16;
  config.feed_forward_size = 8192;
  config.norm = NormKind::layer;
  config.norm_weights = false;
  config.rope_theta = 1e4;
  config.tied_head = true;
  config.initialization_deviation = 0.02;
  return config;
}

}  // namespace tessera
