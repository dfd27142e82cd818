#pragma once

#include <nlohmann/json_fwd.hpp>

#include "checkpoint/hugging_face/config_fields.h"
#include "model/model_config.h"

namespace tessera::hugging_face {

/// Reads the router, experts and rotary embedding of a ZAYA1 config.json into `model`. Throws
/// Error, which names the key, if the class or Tessera has other layers: more than one expert per
/// token, convolutions of other widths, a scaled rotary embedding.
void read_zaya(ConfigFields& fields, ModelConfig& model);

/// Writes the keys that read_zaya() reads into a config.json, and two that ZAYA1 has beside them:
/// layer_types and lm_head_bias.
void write_zaya(const ModelConfig& model, nlohmann::ordered_json& json);

}  // namespace tessera::hugging_face
