#pragma once

#include "model/model_config.h"

namespace tessera::testing {

inline constexpr int64_t kVocabulary = 23;

/// A mixture of experts with every loss.
inline ModelConfig small_mixture() {
  ModelConfig config;
  config.layers = 2;
  config.hidden_size = 8;
  config.heads = 2;
  config.kv_heads = 2;
  config.vocabulary_size = kVocabulary;
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_size = 6;
  config.query_key_norm = QueryKeyNorm::projection;
  config.balance_coefficient = 0.02;
  config.router_z_coefficient = 0.01;
  config.z_loss_coefficient = 1e-3;
  config.initialization_deviation = 0.3;
  return config;
}

inline ModelConfig small_dense() {
  ModelConfig config;
  config.family = Family::llama;
  config.layers = 2;
  config.hidden_size = 12;
  config.heads = 3;
  config.kv_heads = 1;
  config.vocabulary_size = kVocabulary;
  config.feed_forward_size = 10;
  config.initialization_deviation = 0.3;
  return config;
}

}  // namespace tessera::testing
