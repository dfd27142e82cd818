#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/model_config.h"

namespace tessera::hugging_face {

/// A decoder architecture of the transformers library that Tessera reads and writes.
struct Architecture {
  std::string_view name;         ///< its name in config.json's "architectures": "OlmoeForCausalLM"
  std::string_view model_type;   ///< in config.json: "olmoe"
  Family family;                 ///< Tessera's preset with the same layers
  bool mixture = false;          ///< true for a mixture of experts
  bool clips = false;            ///< has the key clip_qkv
  bool chooses_head_dim = true;  ///< has the key head_dim; false: hidden_size / heads
  std::string_view experts_key = "";  ///< the key of the number of experts, in a mixture
  // The library's defaults for keys that config.json leaves out.
  int64_t kv_heads = 0;  ///< 0: as many as query heads
  int64_t head_dim = 0;  ///< 0: hidden_size / heads
  double rope_theta = 1e4;
  double norm_epsilon = 1e-5;
  int64_t max_context = 2048;
  double balance_coefficient = 0;
  bool tied_head = false;
  int64_t bos_token = -1;  ///< the token that begins a text; -1: none, as below
  int64_t eos_token = -1;  ///< the token that ends a text
  int64_t pad_token = -1;  ///< the token whose embedding is not trained
};

std::span<const Architecture> architectures();

/// Returns the architecture with this name, or null.
const Architecture* find_architecture(std::string_view name);

/// Returns the architecture that has the configuration's layers. If there is none, throws Error
/// that names every key whose value the nearest architecture cannot express.
const Architecture& architecture_of(const ModelConfig& config);

}  // namespace tessera::hugging_face
