#pragma once

#include <cstdint>
#include <vector>

#include "base/file.h"

namespace tessera {

/// A rule for the complete checkpoints that are kept. The newest always is.
struct KeepRule {
  int64_t newest = 2;        ///< keep this many of the newest; 0 keeps every checkpoint
  int64_t multiples_of = 0;  ///< keep also those whose step is a multiple of this; 0 for none
};

/// Removes leftovers of killed processes, and then the complete checkpoints that the rule does not
/// keep, oldest first. Returns the paths of these checkpoints. Broken ones stay, so that a person
/// can look at them. A half-removed checkpoint never counts as complete. If a checkpoint cannot be
/// removed, removes the others and then throws Error.
std::vector<fs::path> prune_checkpoints(const fs::path& directory, const KeepRule& rule);

}  // namespace tessera
