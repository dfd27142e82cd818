#pragma once

#include <string>

#include "base/file.h"

namespace tessera {

/// Returns a checkpoint's manifest as tables for a terminal: the step, the state, the files, the
/// tensors and the totals of each group. Does not read the tensors themselves (see
/// verify_checkpoint). Throws Error when the manifest is missing or damaged.
std::string inspect_checkpoint(const fs::path& checkpoint);

/// Returns the content of inspect_checkpoint() as one JSON object: {"path", "step", "created_by",
/// "state", "files": [{"name", "bytes", "xxh3" or, for a .safetensors file, "header_xxh3"}],
/// "block_bytes", "groups": [{"name", "tensors", "elements", "bytes"}], "tensors": [{"group",
/// "name", "dtype", "shape", "elements", "bytes", "pieces": [{"file", "region", "xxh3"}]}]}.
std::string inspect_checkpoint_json(const fs::path& checkpoint);

}  // namespace tessera
