#pragma once

#include <cstdint>
#include <map>

#include "base/file.h"

namespace tessera {

/// Returns the steps whose numbers the event files of a folder hold, each with the hash of its
/// numbers (of summary_message()); none if there is no such folder. Steps that a later file
/// declares void do not count. A file ends at a record that a kill or a full disk cut off.
std::map<int64_t, uint64_t> recorded_steps(const fs::path& folder);

}  // namespace tessera
