#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/hugging_face/config_fields.h"

namespace tessera::hugging_face {

/// The end of reading a config.json: what is left must be keys on which no result depends. Throws
/// Error naming every other key with its value, unless it is among `accepted`, of which a note is
/// taken; and naming an accepted one that is not there or needs no accepting.
void refuse_unknown_keys(ConfigFields& fields, std::span<const std::string> accepted,
                         std::vector<std::string>& notes);

}  // namespace tessera::hugging_face
