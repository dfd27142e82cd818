#pragma once

#include <cstdint>

#include "base/file.h"

namespace tessera {

/// The last step whose numbers the event files of a folder hold: 0 where they hold none, or there
/// is no such folder. What a later file declares void does not count. A record that a kill or a
/// full disk cut off ends its file.
int64_t last_recorded_step(const fs::path& folder);

}  // namespace tessera
