#pragma once

#include "checkpoint/hugging_face/architecture.h"
#include "checkpoint/hugging_face/config_fields.h"

namespace tessera::hugging_face {

/// Fills the model's rotary embedding. Version 5 of transformers has all of it in rope_parameters,
/// version 4 in rope_theta and rope_scaling; a file may have both. Throws Error where they
/// contradict each other and on a scaling that Tessera does not have. model.max_context is known.
void read_rotary(ConfigFields& fields, const Architecture& architecture, ModelConfig& model);

}  // namespace tessera::hugging_face
