#pragma once

#include <string>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"
#include "checkpoint/hugging_face/config_fields.h"

namespace tessera::hugging_face {

/// Returns notes on a config.json, one sentence each: on settings that do not change the model's
/// results but with which transformers would train it differently than Tessera, and on parts that
/// Tessera does not read, such as code of the model's own.
std::vector<std::string> training_notes(ConfigFields& fields, const Architecture& architecture,
                                        const ModelConfig& model);

}  // namespace tessera::hugging_face
