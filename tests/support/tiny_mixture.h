#pragma once

#include "model/model_config.h"

namespace tessera::testing {

/// Four experts, of which each token chooses two; without losses of the router. It is small enough
/// to be trained in fp64 in every test that makes one mistake.
inline ModelConfig tiny_mixture(int64_t layers) {
  ModelConfig model;
  model.layers = layers;
  model.hidden_size = 8;
  model.heads = 2;
  model.kv_heads = 2;
  model.vocabulary_size = 16;
  model.experts = 4;
  model.experts_per_token = 2;
  model.expert_size = 8;
  model.initialization_deviation = 0.2;
  return model;
}

}  // namespace tessera::testing
