#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"
#include "checkpoint/hugging_face/config_fields.h"
#include "model/model_config.h"

namespace tessera::hugging_face {

/// Throws Error if a config.json has a key that changes the mathematics in a way that Tessera does
/// not support. These keys belong to the known architectures or to others derived from them. A file
/// may leave such a key out, or give it as null or with the value that changes nothing. The error
/// names the key and that value.
void refuse_other_layers(ConfigFields& fields, const Architecture& architecture,
                         const ModelConfig& model);

/// Throws Error if the file has an unknown key, because the model's results might depend on it. A
/// key is unknown if nothing has read it, it is not known to be without effect, and it is not in
/// `accepted`. The error names every unknown key with its value. Adds a note to `notes` for each
/// accepted key. Throws Error also for an accepted key that is not in the file or that is known.
void refuse_unknown_keys(ConfigFields& fields, std::span<const std::string> accepted,
                         std::vector<std::string>& notes);

}  // namespace tessera::hugging_face
