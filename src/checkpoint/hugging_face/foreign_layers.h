#pragma once

#include "checkpoint/hugging_face/architecture.h"
#include "checkpoint/hugging_face/config_fields.h"
#include "model/model_config.h"

namespace tessera::hugging_face {

/// Throws Error if a config.json has a key that changes the mathematics in a way that Tessera does
/// not support. Such keys belong to the known architectures or to others derived from them. Each
/// may be left out, be null or have the value that changes nothing. The error names the key and
/// that value.
void refuse_other_layers(ConfigFields& fields, const Architecture& architecture,
                         const ModelConfig& model);

}  // namespace tessera::hugging_face
