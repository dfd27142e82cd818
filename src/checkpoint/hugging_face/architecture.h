#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "model/model_config.h"

namespace tessera::hugging_face {

/// A decoder architecture of the transformers library that Tessera reads and writes.
struct Architecture {
  std::string_view name;  ///< its name in config.json's "architectures": "OlmoeForCausalLM"
  Family family;          ///< Tessera's preset with the same layers
  /// True if there is a key head_dim. Otherwise it is hidden_size / heads, and there is clip_qkv.
  bool chooses_head_dim = true;
  std::string_view experts_key = "";  ///< the key of the number of experts, in a mixture
  // The library's defaults for keys that config.json leaves out.
  int64_t kv_heads = 0;  ///< 0: as many as query heads
  int64_t head_dim = 0;  ///< 0: hidden_size / heads
  double rope_theta = 1e4;
  double norm_epsilon = 1e-5;
  int64_t max_context = 2048;
  double balance_coefficient = 0;
  bool tied_head = false;
  /// The tokens that begin and end a text, and the one whose embedding is not trained; -1: none.
  std::array<int64_t, 3> tokens{-1, -1, -1};

  std::string_view model_type() const { return word(family); }  ///< in config.json: "olmoe"
  bool mixture() const { return !experts_key.empty(); }
};

std::span<const Architecture> architectures();

/// Returns the architecture with this name, or null.
const Architecture* find_architecture(std::string_view name);

/// Returns the architecture that has the configuration's layers. If there is none, throws Error
/// that names every key whose value the nearest architecture cannot express.
const Architecture& architecture_of(const ModelConfig& config);

}  // namespace tessera::hugging_face
