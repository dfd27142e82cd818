#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/model_config.h"

namespace tessera::hugging_face {

/// A decoder architecture of the transformers library that Tessera reads and writes.
struct Architecture {
  std::string_view name;        ///< in config.json's "architectures": "OlmoeForCausalLM"
  std::string_view model_type;  ///< in config.json: "olmoe"
  Family family;                ///< Tessera's preset with the same layers
  bool mixture;
  bool clips;             ///< knows clip_qkv
  bool chooses_head_dim;  ///< knows head_dim; otherwise a head has hidden_size / heads channels
  // What the library takes where config.json says nothing.
  double rope_theta;
  double norm_epsilon;
  int64_t max_context;
  double balance_coefficient;
  int64_t pad_token;             ///< whose embedding it does not train; -1: none
  std::string_view experts_key;  ///< the key of the number of experts
};

/// All of them.
std::span<const Architecture> architectures();

/// The architecture of that name, or null.
const Architecture* find_architecture(std::string_view name);

/// The architecture whose layers are those of the configuration. Throws Error naming every key that
/// the nearest one cannot express.
const Architecture& architecture_of(const ModelConfig& config);

}  // namespace tessera::hugging_face
