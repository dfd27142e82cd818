#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"
#include "checkpoint/hugging_face/config_fields.h"
#include "model/model_config.h"

namespace tessera::hugging_face {

/// Throws Error if a config.json has a key that changes the mathematics in a way that Tessera does
/// not support. Such keys belong to the known architectures or to others derived from them. Such a
/// key may be left out, be null or have the value that changes nothing. The error names the key and
/// that value.
void refuse_other_layers(ConfigFields& fields, const Architecture& architecture,
                         const ModelConfig& model);

/// Throws Error that names every key, with its value, that nothing has read, that is not known to
/// be without effect and that is not in `accepted`: no result may depend on an unread key. Adds a
/// note to `notes` for each accepted key. Throws Error also for an accepted key that is not in the
/// file or need not be accepted.
void refuse_unknown_keys(ConfigFields& fields, std::span<const std::string> accepted,
                         std::vector<std::string>& notes);

}  // namespace tessera::hugging_face
