#pragma once

#include <nlohmann/json_fwd.hpp>

#include "checkpoint/hugging_face/config_fields.h"
#include "model/model_config.h"

namespace tessera::hugging_face {

/// Reads what a config.json of ZAYA1 says of its router, experts and rotary embedding, into
/// `model`. Throws Error, naming the key, where the class or Tessera has other layers: more than
/// one expert a token, convolutions of other widths, a scaled rotary embedding.
void read_zaya(ConfigFields& fields, ModelConfig& model);

/// Writes these keys of a config.json.
void write_zaya(const ModelConfig& model, nlohmann::ordered_json& json);

}  // namespace tessera::hugging_face
