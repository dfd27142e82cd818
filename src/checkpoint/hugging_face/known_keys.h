#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/hugging_face/config_fields.h"

namespace tessera::hugging_face {

/// Checks the keys of a config.json that nothing has read: no result may depend on them. Throws
/// Error that names every unread key, with its value, that is neither known to be without effect
/// nor in `accepted`. An accepted key adds a note to `notes`. Throws Error also for an accepted key
/// that is not in the file or need not be accepted.
void refuse_unknown_keys(ConfigFields& fields, std::span<const std::string> accepted,
                         std::vector<std::string>& notes);

}  // namespace tessera::hugging_face
