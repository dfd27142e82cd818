#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "config/load_config.h"

namespace tessera::testing {

/// Returns the configuration of a small dense model of so many layers, with further keys.
inline RunConfig small_run(int layers, const std::vector<std::string>& more) {
  std::vector<std::string> overrides{"model.family=\"llama\"",
                                     "model.vocabulary_size=64",
                                     fmt::format("model.layers={}", layers),
                                     "model.hidden_size=32",
                                     "model.heads=4",
                                     "model.kv_heads=2",
                                     "model.experts=0",
                                     "model.feed_forward_size=64",
                                     "data.context=16",
                                     "train.micro_batch=1",
                                     "train.global_batch=8"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return parse_config("", "test", overrides);
}

}  // namespace tessera::testing
