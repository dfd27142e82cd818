#pragma once

#include <cstdint>
#include <vector>

#include "base/file.h"

namespace tessera {

/// Which complete checkpoints stay. The newest always does.
struct KeepRule {
  int64_t newest = 2;        ///< as many of the newest; 0 keeps every checkpoint
  int64_t multiples_of = 0;  ///< and those whose step divides by this; 0 for none
};

/// Removes the complete checkpoints that the rule does not keep, oldest first, and what killed
/// processes left behind; returns the removed checkpoints' paths. Broken checkpoints stay, for a
/// person to look at. A process killed meanwhile leaves no half-removed checkpoint that counts as
/// complete. Throws Error when a folder cannot be removed, the others having been.
std::vector<fs::path> prune_checkpoints(const fs::path& directory, const KeepRule& rule);

}  // namespace tessera
