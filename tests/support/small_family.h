#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/words.h"
#include "model/model_config.h"

namespace tessera::testing {

inline std::vector<Family> every_family() {
  std::vector<Family> families;
  for (const std::string& family : words_of<Family>()) {
    families.push_back(from_word<Family>(family));
  }
  return families;
}

/// The name of a test whose parameter is a family.
inline std::string name_of_family(const ::testing::TestParamInfo<Family>& tested) {
  return std::string(word(tested.param));
}

/// A family's preset in small sizes: heads and experts that divide over 2 and 4 ranks, and a
/// vocabulary that does not. All else is the family's.
inline ModelConfig small_family(Family family) {
  ModelConfig config = family_preset(family);
  config.layers = 2;
  config.hidden_size = 16;
  config.kv_heads = config.kv_heads < config.heads ? 2 : 4;
  config.heads = 4;
  config.head_dim = 0;
  config.vocabulary_size = 23;
  config.feed_forward_size = config.mixture() ? 0 : 24;
  config.experts = config.mixture() ? 8 : 0;
  config.experts_per_token = config.mixture() ? std::min<int64_t>(config.experts_per_token, 2) : 0;
  config.expert_size = config.mixture() ? 8 : 0;
  config.router_size = std::min<int64_t>(config.router_size, 6);
  return config;
}

}  // namespace tessera::testing
