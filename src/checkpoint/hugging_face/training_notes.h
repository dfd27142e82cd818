#pragma once

#include <string>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"
#include "checkpoint/hugging_face/config_fields.h"

namespace tessera::hugging_face {

/// What of a config.json changes nothing in what the model computes, but would make transformers
/// train it otherwise than Tessera does, or read it otherwise where Tessera looks no further: a
/// sentence each.
std::vector<std::string> training_notes(ConfigFields& fields, const Architecture& architecture,
                                        const ModelConfig& model);

}  // namespace tessera::hugging_face
