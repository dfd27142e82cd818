#pragma once

#include <string>
#include <string_view>

#include "checkpoint/hugging_face/architecture.h"

namespace tessera::hugging_face {

/// What a config.json says beside the model's layers.
struct ConfigSurroundings {
  int64_t max_context = 0;  ///< tokens
  std::string dtype;        ///< "bfloat16", "float16", "float32"
  /// A config.json whose token ids (bos, eos, pad), output_router_logits and, where it is no
  /// shorter than max_context, sliding_window are taken over; empty: none.
  std::string_view original;
  int64_t end_of_document = -1;  ///< the eos id where `original` is empty; -1: none
};

/// The text of a config.json that transformers 4 and 5 read: rotary embedding and element type
/// stand there in both versions' keys.
std::string write_config(const Architecture& architecture, const ModelConfig& model,
                         const ConfigSurroundings& surroundings);

/// The text of a generation_config.json with the token ids of a config.json.
std::string write_generation_config(std::string_view config);

}  // namespace tessera::hugging_face
