#pragma once

#include "checkpoint/hugging_face/architecture.h"
#include "checkpoint/hugging_face/config_fields.h"
#include "model/model_config.h"

namespace tessera::hugging_face {

/// Refuses keys of a config.json that change the mathematics in ways that Tessera does not support.
/// They are keys of the known architectures and of others derived from them. Each key may be left
/// out, be null or have the value that changes nothing. Throws Error naming the key and that value.
void refuse_other_layers(ConfigFields& fields, const Architecture& architecture,
                         const ModelConfig& model);

}  // namespace tessera::hugging_face
