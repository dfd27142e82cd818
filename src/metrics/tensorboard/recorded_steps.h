#pragma once

#include <cstdint>

#include "base/file.h"

namespace tessera {

/// Returns the last step whose numbers the event files of a folder hold; 0 if they hold none or
/// there is no such folder. Steps that a later file declares void do not count. A record that a
/// kill or a full disk cut off ends its file.
int64_t last_recorded_step(const fs::path& folder);

}  // namespace tessera
