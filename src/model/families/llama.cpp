#include "model/families/families.h"

namespace tessera {

// The preset of Llama 3 8B; fields that are not set keep the defaults of ModelConfig.
ModelConfig llama_family() {
  ModelConfig config;
  config.family = Family::llama;
  config.layers = 32;
  config.hidden_size = 4096;
  config.heads = 32;
  config.kv_heads = 8;
  config.feed_forward_size = 14336;
  config.rope_theta = 5e5;
  config.initialization_deviation = 0.02;
  return config;
}

}  // namespace tessera
