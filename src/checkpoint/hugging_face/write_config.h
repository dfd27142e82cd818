#pragma once

#include <string>
#include <string_view>

#include "checkpoint/hugging_face/architecture.h"

namespace tessera::hugging_face {

/// The values of a config.json that do not describe the model's layers.
struct ConfigSurroundings {
  int64_t max_context = 0;  ///< tokens
  std::string dtype;        ///< "bfloat16", "float16", "float32"
  /// A config.json from which values are copied; empty: none. These are the token ids (bos, eos,
  /// pad), output_router_logits, and sliding_window if it is not shorter than max_context.
  std::string_view original;
  int64_t end_of_document = -1;  ///< the eos_token_id if `original` is empty; -1: none
};

/// Returns the text of a config.json that transformers 4 and 5 can read. The rotary embedding and
/// the element type are written with the keys of both versions.
std::string write_config(const Architecture& architecture, const ModelConfig& model,
                         const ConfigSurroundings& surroundings);

/// Returns the text of a generation_config.json with the token ids of a config.json.
std::string write_generation_config(std::string_view config);

}  // namespace tessera::hugging_face
