#pragma once

#include "checkpoint/hugging_face/architecture.h"
#include "checkpoint/hugging_face/config_fields.h"

namespace tessera::hugging_face {

/// Reads the rotary embedding (RoPE) into `model`, whose max_context is already set. Version 5 of
/// transformers stores it in rope_parameters, version 4 in rope_theta and rope_scaling; a file may
/// have both. Throws Error when the two contradict each other, and on a scaling that Tessera does
/// not support. ZAYA1 has a form of its own (see read_zaya()).
void read_rotary(ConfigFields& fields, const Architecture& architecture, ModelConfig& model);

}  // namespace tessera::hugging_face
